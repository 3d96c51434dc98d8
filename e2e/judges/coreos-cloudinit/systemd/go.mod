module github.com/coreos/go-systemd

go 1.26.0
