//go:build !unix

package pty

import "os/exec"

func (t *Terminal) start(*exec.Cmd, Size) error { return ErrUnsupported }

// Resize fails.
func (t *Terminal) Resize(Size) (Size, error) { return Size{}, ErrUnsupported }

type flow struct{}

func (t *Terminal) take(p []byte) (int, error) { return t.master.Read(p) }
