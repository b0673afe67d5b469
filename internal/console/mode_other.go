//go:build !unix

package console

import "os"

// Signals is empty: the system has no signals for terminals.
var Signals []os.Signal

// Continued reports whether a signal says that the stopped program continues.
func Continued(os.Signal) bool { return false }

// Stop does nothing: the system cannot stop programs.
func (m *Mode) Stop(<-chan os.Signal) (os.Signal, error) { return nil, nil }
