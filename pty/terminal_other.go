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
func (d *device) Write([]byte) (int, error)        { return 0, ErrUnsupported }
func (d *device) SetReadDeadline(time.Time) error  { return ErrUnsupported }
func (d *device) SetWriteDeadline(time.Time) error { return ErrUnsupported }
func (d *device) Close() error                     { return nil }
