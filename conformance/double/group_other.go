//go:build !unix

package double

import (
	"os"
	"os/exec"
)

// groupOf does nothing: there are no process groups here.
func groupOf(*exec.Cmd) {}

// signalGroup ends a process.
func signalGroup(p *os.Process, _, _ bool) { _ = p.Kill() } // it may be gone

// signalOf names no signal: there are none here.
func signalOf(*os.ProcessState) string { return "" }
