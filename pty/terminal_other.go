//go:build !unix

package pty

import "os/exec"

func (t *Terminal) start(*exec.Cmd, Size) error { return ErrUnsupported }

// Resize fails.
func (t *Terminal) Resize(Size) (Size, error) { return Size{}, ErrUnsupported }

func ended(err error) error { return err }
