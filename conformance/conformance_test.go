package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// take has signals do nothing here. Unlike one that is ignored, commands do not
// inherit that.
func take(signals ...os.Signal) { signal.Notify(make(chan os.Signal, 1), signals...) }

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && (os.Args[1] == asStdio || os.Args[1] == asRunner) {
		os.Exit(serveWithFaults(os.Args[1], os.Args[2], os.Args[3:]))
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(sig) { // as in the background of a script
			take(sig)
		}
	}
	// A child under the race detector would linger for a second when it ends.
	err := os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	if err == nil {
		scratch, err = os.MkdirTemp("", "maestro-conformance-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := flag.Set("test.parallel", "3"); err != nil { // tests mostly wait; the command line may say another number
		panic(err) // the flag exists
	}
	code := m.Run()
	endServers()
	_ = os.RemoveAll(scratch) // what is left is in the system's scratch space
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
