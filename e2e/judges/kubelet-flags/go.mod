module github.com/kubermatic/operating-system-manager/e2e/judges/kubelet-flags

go 1.26.0
