// Serve runs the local model server for trying agents by hand.
//
//	go run ./internal/testkit/localmodel/serve [--listen 127.0.0.1:9911] [--script FILE] [--pause 30ms]
//
// It prints its URL once it listens and runs until it is killed. The exit code is 2
// for wrong usage, and 1 if it cannot serve.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9911", "address to listen on")
	script := flag.String("script", "", "file with what is answered; without it prompts say so themselves")
	var options localmodel.Options
	flag.DurationVar(&options.Pause, "pause", 0, "time between two events of a stream")
	flag.Parse()
	if err := serve(*listen, *script, options, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

// serve serves until it fails.
func serve(listen, script string, options localmodel.Options, stdout io.Writer) (err error) {
	if script != "" {
		if options.Script, err = localmodel.LoadScript(script); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	server := http.Server{Handler: localmodel.New(options), ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}
