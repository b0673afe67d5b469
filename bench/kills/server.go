package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startPatience = 30 * time.Second // until a server listens
	retain        = 64 << 30         // bytes of journal: what is missing from it was lost
)

// A server is the program under trial: one state directory and one port, and
// one process after the other.
type server struct {
	binary string
	dir    string // holds everything it reads and writes
	addr   string // what it listens on; the system chose the port at the first start

	cmd    *exec.Cmd // nil while there is no process
	stderr bytes.Buffer
}

// newServer writes the script of the agent into dir, which must exist.
func newServer(binary, dir string, events int) (*server, error) {
	s := &server{binary: binary, dir: dir, addr: "127.0.0.1:0"}
	text, err := json.Marshal(scenario(events))
	if err != nil {
		return nil, err
	}
	return s, errors.Join(os.WriteFile(s.path("script.json"), text, 0o600), os.Mkdir(s.path("workspace"), 0o700))
}

func (s *server) path(name string) string { return filepath.Join(s.dir, name) }

// base is the server's address for clients.
func (s *server) base() string { return "http://" + s.addr }

// start starts a process and waits until it listens. The process runs until kill,
// whatever start returns.
func (s *server) start() error {
	cmd := exec.Command(s.binary, "serve",
		"--agent", "script:"+s.path("script.json"), "--workspace", s.path("workspace"), "--state-dir", s.path("state"),
		"--listen", s.addr, "--auth", "off", "--ready-stdout",
		"--retain-bytes", strconv.FormatInt(retain, 10))
	s.stderr.Reset()
	cmd.Stderr = &s.stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.binary, err)
	}
	s.cmd = cmd
	late := time.AfterFunc(startPatience, func() { _ = cmd.Process.Kill() }) // which ends the read below
	defer late.Stop()
	var ready struct {
		BaseURL string `json:"baseUrl"`
	}
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		return errors.Join(fmt.Errorf("wait for the server: %w", err), s.kill())
	}
	s.addr = strings.TrimPrefix(ready.BaseURL, "http://")
	return nil
}

// kill ends the process, if there is one, as a crash does: with no chance to do
// anything more. A process that has ended by itself is an error.
func (s *server) kill() error {
	if s.cmd == nil {
		return nil
	}
	err := errors.Join(s.cmd.Process.Kill(), s.cmd.Wait())
	killed := s.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	s.cmd = nil
	if !killed {
		return fmt.Errorf("the server ended by itself (%v): %s", err, &s.stderr)
	}
	return nil
}
