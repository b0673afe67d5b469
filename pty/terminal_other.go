//go:build !unix

package pty

import (
	"os/exec"
	"time"
)

// A device is never used: start fails, so no other method is called.
type device struct{}

func (t *Terminal) start(*exec.Cmd, Size) error { return ErrUnsupported }

// Resize fails.
func (t *Terminal) Resize(Size) (Size, error) { return Size{}, ErrUnsupported }

func (d *device) read([]byte) (int, error)         { return 0, ErrUnsupported }
func (d *device) write([]byte) (int, error)        { return 0, ErrUnsupported }
func (d *device) setReadDeadline(time.Time) error  { return ErrUnsupported }
func (d *device) setWriteDeadline(time.Time) error { return ErrUnsupported }
func (d *device) close() error                     { return nil }
