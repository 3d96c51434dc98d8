// Command node-test is what the pods of a test run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: node-test COMMAND

  serve              answer HTTP requests on port 8080 and print a line for each
  install-cni FILE   write the network configuration in $CNI_CONFIG to FILE, then wait
  resolv             print /etc/resolv.conf
`

func main() {
	// As process 1 it would otherwise not even notice SIGTERM.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "node-test:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		return serve(ctx, ":8080")
	case len(args) == 2 && args[0] == "install-cni":
		return installCNI(ctx, os.Getenv("CNI_CONFIG"), args[1])
	case len(args) == 1 && args[0] == "resolv":
		text, err := os.ReadFile("/etc/resolv.conf")
		fmt.Print(string(text))
		return err
	default:
		return errUsage
	}
}
