//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: needs Linux: it reads processor time from /proc and its viewers use epoll")
	os.Exit(1)
}
