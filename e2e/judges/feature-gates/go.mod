// Only marks the module's root: builds name one of the go-<minor>.mod files beside it.
module example.com/operating-system-manager/e2e/judges/feature-gates

go 1.26.0
