// Command pause holds a pod's namespaces: it does nothing, as process 1 reaps what becomes orphaned, and ends when told to.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	// One place is enough: a signal that finds it taken announces children that the loop below is about to find anyway.
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ends:
			return
		case <-children:
			reap()
		}
	}
}

// reap takes every child that has ended: signals of several may have become one.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
