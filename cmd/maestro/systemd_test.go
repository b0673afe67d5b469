//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// passed is maestro with the arguments and with files from descriptor 3 on, as systemd
// passes them. It is started by a shell, because LISTEN_PID is the id of its process.
func passed(t *testing.T, names string, files []*os.File, args ...string) *exec.Cmd {
	t.Helper()
	cmd := program(t, args...)
	cmd.Args = append([]string{"/bin/sh", "-c", `export LISTEN_PID=$$; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.Env = append(cmd.Env, "LISTEN_PID=", "LISTEN_FDS="+strconv.Itoa(len(files)), "LISTEN_FDNAMES="+names)
	cmd.ExtraFiles = files
	return cmd
}

// A filer is a socket.
type filer interface {
	File() (*os.File, error)
	io.Closer
}

// fileOf returns a copy of the descriptor of a socket.
func fileOf(t *testing.T, socket any, err error) *os.File {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	f, err := socket.(filer).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close(); _ = socket.(filer).Close() })
	return f
}

// TestPassedSocketOutlivesTheServer starts the server twice on one socket, as systemd
// does. Clients that connect while no server runs wait for the next one.
func TestPassedSocketOutlivesTheServer(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	socket := fileOf(t, ln, err)
	dir, err := os.MkdirTemp(scratch, "") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	told := func() string {
		t.Helper()
		buf := make([]byte, 4096)
		if err := notify.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := notify.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	for _, name := range []string{"systemd", "systemd:maestro.socket"} {
		early, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer early.Close()
		if _, err := io.WriteString(early, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "ready.json")
		cmd := passed(t, "maestro.socket", []*os.File{socket}, "serve", "--listen", name, "--ready-file", path)
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+notify.LocalAddr().String())
		ready := startListening(t, cmd, path)
		if want := "http://" + ln.Addr().String(); ready.BaseURL != want {
			t.Errorf("--listen %s: got %s, want %s", name, ready.BaseURL, want)
		}
		if got, want := told(), "READY=1\nSTATUS=listening on "+ln.Addr().String(); got != want {
			t.Errorf("--listen %s: got %q, want %q", name, got, want)
		}
		if res, err := http.ReadResponse(bufio.NewReader(early), nil); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("--listen %s: got %v, %v for a client that came before the server, want 200", name, res, err)
		}
		attach := program(t, "attach", "--no-history", "--token-file", ready.TokenFile, ready.BaseURL)
		attach.Stdin = strings.NewReader("echo \"[$LISTEN_PID$LISTEN_FDS$LISTEN_FDNAMES$NOTIFY_SOCKET]\"\ny\n")
		if out, err := attach.CombinedOutput(); err != nil || !strings.Contains(string(out), "  | []\n") {
			t.Errorf("--listen %s: got %v and\n%s\nwant that commands of the agent have no variable of systemd", name, err, out)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if got := told(); got != "STOPPING=1" {
			t.Errorf("--listen %s: got %q, want STOPPING=1", name, got)
		}
		if got := exitCode(t, cmd.Wait()); got != 143 {
			t.Errorf("--listen %s: got exit code %d, want 143", name, got)
		}
	}
}

func TestPassedSocketIsChosenByName(t *testing.T) {
	t.Parallel()
	first, errFirst := net.Listen("tcp", "127.0.0.1:0")
	second, errSecond := net.Listen("tcp", "127.0.0.1:0")
	files := []*os.File{fileOf(t, first, errFirst), fileOf(t, second, errSecond)}
	path := filepath.Join(t.TempDir(), "ready.json")
	cmd := passed(t, "one:two", files, "serve", "--listen", "systemd:two", "--ready-file", path)
	if ready := startListening(t, cmd, path); ready.BaseURL != "http://"+second.Addr().String() {
		t.Errorf("got %s, want %s", ready.BaseURL, second.Addr())
	}
}

func TestSocketsThatCannotServeAreRefused(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	listening := fileOf(t, tcp, err)
	all, err := net.Listen("tcp", "0.0.0.0:0")
	everywhere := fileOf(t, all, err)
	conn, err := net.Dial("tcp", tcp.Addr().String())
	connected := fileOf(t, conn, err)
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	datagrams := fileOf(t, packets, err)
	local, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	unix := fileOf(t, local, err)
	plain, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for _, test := range []struct {
		what, listen string
		files        []*os.File
		env          string
		code         int
		want         string
	}{
		{"no variables", "systemd", nil, "LISTEN_FDS=", exitFailure, "LISTEN_FDS is not set. Start the service with its .socket unit"},
		{"no sockets", "systemd", nil, "", exitFailure, `LISTEN_FDS is "0": want a number from 1 to 256`},
		{"no number", "systemd", nil, "LISTEN_FDS=many", exitFailure, `LISTEN_FDS is "many"`},
		{"too many", "systemd", nil, "LISTEN_FDS=257", exitFailure, `LISTEN_FDS is "257"`},
		{"several", "systemd", []*os.File{listening, everywhere}, "", exitFailure, `2 sockets were passed, ["a" "b"]: name one with --listen systemd:NAME`},
		{"unknown name", "systemd:c", []*os.File{listening}, "", exitFailure, `no socket named "c" was passed, only ["a" "b"]`},
		{"name without a socket", "systemd:b", []*os.File{listening}, "", exitFailure, `no socket named "b" was passed`},
		{"connection", "systemd", []*os.File{connected}, "", exitFailure, "descriptor 3 does not listen: want a TCP socket"},
		{"datagrams", "systemd", []*os.File{datagrams}, "", exitFailure, "descriptor 3 does not listen"},
		{"Unix socket", "systemd", []*os.File{unix}, "", exitFailure, "descriptor 3 is a socket of the kind unix: want a TCP socket"},
		{"file", "systemd", []*os.File{plain}, "", exitFailure, "descriptor 3: socket operation on non-socket"},
		{"nothing", "systemd", nil, "LISTEN_FDS=200", exitFailure, "name one with"},
		{"closed", "systemd:b", []*os.File{listening}, "LISTEN_FDS=2", exitFailure, "descriptor 4"},
		{"no name", "systemd:", []*os.File{listening}, "", exitUsage, "want a port"},
	} {
		cmd := passed(t, "a:b", test.files, "serve", "--listen", test.listen)
		if test.env != "" {
			cmd.Env = append(cmd.Env, test.env)
		}
		out, err := cmd.CombinedOutput()
		if got := exitCode(t, err); got != test.code || !strings.Contains(string(out), test.want) {
			t.Errorf("%s: got exit code %d and %s, want %d and %q", test.what, got, out, test.code, test.want)
		}
	}
	other := program(t, "serve", "--listen", "systemd")
	other.Env = append(other.Env, "LISTEN_PID=1", "LISTEN_FDS=1")
	if out, err := other.CombinedOutput(); exitCode(t, err) != exitFailure || !strings.Contains(string(out), "LISTEN_PID is 1, another process") {
		t.Errorf("sockets of another process: got %v and %s", err, out)
	}
	open := passed(t, "a", []*os.File{everywhere}, "serve", "--listen", "systemd", "--auth", "off")
	if out, err := open.CombinedOutput(); exitCode(t, err) != exitUsage || !strings.Contains(string(out), "--auth off is accepted on a loopback address only") {
		t.Errorf("--auth off beyond loopback: got %v and %s", err, out)
	}
}

// TestServerServesIfSystemdDoesNotListen is about a NOTIFY_SOCKET that is gone.
func TestServerServesIfSystemdDoesNotListen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ready.json")
	cmd := program(t, "serve", "--listen", "127.0.0.1:0", "--ready-file", path)
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(t.TempDir(), "none"))
	startListening(t, cmd, path)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := exitCode(t, cmd.Wait()); got != 143 {
		t.Errorf("got exit code %d, want 143", got)
	}
	if log := cmd.Stderr.(*bytes.Buffer).String(); !strings.Contains(log, "systemd was not told the state of the service") {
		t.Errorf("got\n%s\nwant a warning", log)
	}
}
