// The judge of Ignition configs. A module of its own, so that its versions bind nobody else.
module example.com/operating-system-manager/e2e/judges/ignition

go 1.26.6

require (
	github.com/coreos/ignition/v2 v2.24.0
	github.com/vincent-petithory/dataurl v1.0.0
)

require (
	github.com/coreos/go-json v0.0.0-20230131223807-18775e0fb4fb // indirect
	github.com/coreos/go-semver v0.3.1 // indirect
	github.com/coreos/go-systemd/v22 v22.6.0 // indirect
	github.com/coreos/vcontext v0.0.0-20230201181013-d72178a18687 // indirect
)
