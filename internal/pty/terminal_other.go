//go:build !unix

package pty

import (
	"os/exec"
	"time"
)

// Start fails.
func Start(*exec.Cmd, Size) (*Terminal, error) { return nil, ErrUnsupported }

// A device is never used.
type device struct{}

// Resize fails.
func (t *Terminal) Resize(Size) (Size, error) { return Size{}, ErrUnsupported }

func (d *device) read([]byte) (int, error)         { return 0, ErrUnsupported }
func (d *device) Write([]byte) (int, error)        { return 0, ErrUnsupported }
func (d *device) SetReadDeadline(time.Time) error  { return ErrUnsupported }
func (d *device) SetWriteDeadline(time.Time) error { return ErrUnsupported }
func (d *device) Close() error                     { return nil }
