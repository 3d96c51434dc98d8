// The judge of cloud-configs for coreos-cloudinit. A module of its own, so that its versions bind nobody else.
//
// This is the last release of the original, from which Flatcar's goes on. What it would ask systemd and the kernel, it asks stand-ins.
module example.com/operating-system-manager/e2e/judges/coreos-cloudinit

go 1.26.0

require github.com/coreos/coreos-cloudinit v1.14.0

require (
	github.com/coreos/go-systemd v0.0.0 // indirect
	github.com/coreos/yaml v0.0.0-20141224210557-6b16a5714269 // indirect
	github.com/dotcloud/docker v0.0.0 // indirect
	gopkg.in/check.v1 v1.0.0-20201130134442-10cb98267c6c // indirect
)

replace (
	github.com/coreos/go-systemd => ./systemd
	github.com/dotcloud/docker => ./netlink
)
