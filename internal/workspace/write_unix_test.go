//go:build unix

package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestPipesAndDevicesAreNeitherReadNorReplaced(t *testing.T) {
	w := open(t, nil)
	must(t, syscall.Mkfifo(filepath.Join(w.Root(), "pipe"), 0o600))
	must(t, os.Symlink("pipe", filepath.Join(w.Root(), "link")))
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must(t, err)
	defer func() { must(t, syscall.Close(socket)) }()
	t.Chdir(w.Root()) // the path of a socket has little room
	must(t, syscall.Bind(socket, &syscall.SockaddrUnix{Name: "socket"}))
	for _, name := range []string{"pipe", "link", "socket"} {
		if _, _, err := w.ReadFile(name, 10); !errors.Is(err, ErrNotRegular) {
			t.Errorf("read %s: got %v, want %v", name, err, ErrNotRegular)
		}
		for how, do := range map[string]func(string, []byte) error{"write": w.WriteFile, "create": w.CreateFile} {
			if err := do(name, nil); !errors.Is(err, ErrNotRegular) {
				t.Errorf("%s %s: got %v, want %v", how, name, err, ErrNotRegular)
			}
		}
		if err := w.WriteFile(name+"/below", nil); err == nil {
			t.Errorf("%s: got no error for a file below it, want one", name)
		}
	}
	if info, err := os.Lstat("pipe"); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("got %v, %v; want the pipe still", info, err)
	}
}

// A process that may gives the file back to whom it belongs.
func TestOwnerIsKept(t *testing.T) {
	w := open(t, map[string]string{"file": "old"})
	path := filepath.Join(w.Root(), "file")
	want := [2]int{os.Getuid(), os.Getgid()}
	if os.Getuid() == 0 {
		want = [2]int{12345, 54321}
		must(t, os.Chown(path, want[0], want[1]))
	}
	must(t, w.WriteFile("file", []byte("new")))
	info, err := os.Stat(path)
	must(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	if got := [2]int{int(stat.Uid), int(stat.Gid)}; got != want {
		t.Errorf("got owner and group %v, want %v", got, want)
	}
}
