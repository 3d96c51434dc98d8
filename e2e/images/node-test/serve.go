package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// serve answers every request with the pod's name, until ctx ends.
func serve(ctx context.Context, address string) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("%s serves on %s\n", hostname, listener.Addr())
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Printf("%s %s from %s\n", r.Method, r.URL.Path, r.RemoteAddr)
			fmt.Fprintln(w, hostname)
		}),
	}
	// Returns at once: no request of a test is worth waiting for.
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	fmt.Println("ended")
	return nil
}
