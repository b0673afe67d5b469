package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// What runs as the server's user cannot read the server's environment, unless that
// user is root. Root tests it as another user.
func TestEnvironmentIsClosedToItsUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "maestro-hide-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := program(t, "headless", "--workspace", dir, "--state-dir", filepath.Join(dir, "state"))
	reader := exec.CommandContext(t.Context(), "cat")
	if os.Getuid() == 0 {
		const nobody = 65534
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		server.Path = filepath.Join(dir, "maestro")
		copyProgram(t, server.Path)
		as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		server.SysProcAttr, reader.SysProcAttr = as, as
		reader.Dir = "/"
	}
	server.Dir = dir
	server.Env = append(server.Env, "HOME="+dir, "OPENAI_API_KEY=sentinel")
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, `"ready"`) {
		t.Fatalf("got %q, %v; want that it is ready", line, err)
	}
	reader.Args = append(reader.Args, "/proc/"+strconv.Itoa(server.Process.Pid)+"/environ")
	if got, err := reader.CombinedOutput(); err == nil || strings.Contains(string(got), "sentinel") {
		t.Errorf("its user reads %q, %v; want to be refused", got, err)
	}
	_ = in.Close()
	_, _ = io.Copy(io.Discard, out)
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

// copyProgram puts the program where every user may run it.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, from); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
