//go:build !unix

package console

import "os"

// Signals is empty: the system has none for terminals.
var Signals []os.Signal

// Stop does nothing: the system cannot stop programs.
func (m *Mode) Stop() error { return nil }
