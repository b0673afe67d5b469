// Command empty says ready and waits for the end of its input: what starting any Go
// program takes.
package main

import (
	"io"
	"os"
)

func main() {
	_, _ = os.Stdout.WriteString(`{"type":"ready"}` + "\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
