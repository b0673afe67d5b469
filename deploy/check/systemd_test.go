package check_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// units writes the units into a directory, with the program that was built.
func units(t *testing.T) (service, socket string) {
	t.Helper()
	dir := t.TempDir()
	return written(t, dir, "maestro.service", adapted(t, "systemd/maestro.service", "/usr/local/bin/maestro", maestro)),
		written(t, dir, "maestro.socket", read(t, "systemd/maestro.socket"))
}

func TestSystemdTakesTheUnits(t *testing.T) {
	t.Parallel()
	service, socket := units(t)
	if out := output(t, "systemd-analyze", "verify", "--man=no", service, socket); out != "" {
		t.Errorf("got\n%s", out)
	}
}

// TestServiceIsConfined fails if the exposure that systemd computes, from 0 to 10, is above 2.0.
// The rest is what agents need: networks, a writable workspace, and the home directory of the
// user.
func TestServiceIsConfined(t *testing.T) {
	t.Parallel()
	service, _ := units(t)
	output(t, "systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", service)
}

// TestCommandOfTheServiceServesAPassedSocket passes a socket to the command of the unit. The
// first connection starts the command.
func TestCommandOfTheServiceServesAPassedSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := written(t, dir, "maestro.toml", adapted(t, "systemd/maestro.toml",
		"/srv/maestro", t.TempDir(), "/var/lib/maestro/metrics-token", filepath.Join(dir, "metrics-token"), "/var/lib/maestro", dir))
	var line string
	for _, l := range strings.Split(read(t, "systemd/maestro.service"), "\n") {
		if value, ok := strings.CutPrefix(l, "ExecStart="); ok {
			line = value
		}
	}
	words := strings.Fields(strings.ReplaceAll(line, "/etc/maestro/maestro.toml", config))
	if len(words) == 0 {
		t.Fatal("got no ExecStart= in the unit")
	}
	words[0] = maestro
	addr, _ := free(t)
	cmd := exec.Command("systemd-socket-activate",
		append([]string{"--listen=" + addr, "--setenv=HOME=" + dir, "--setenv=PATH=" + os.Getenv("PATH")}, words...)...)
	start(t, "Listening on "+addr, cmd)
	if status, body := fetch(t, "http://"+addr+"/readyz", ""); status != http.StatusOK {
		t.Errorf("got %d %s, want 200", status, body)
	}
	if out := output(t, maestro, "sessions", "show", "main", "--config", config); !strings.Contains(out, filepath.Join(dir, ".local/state/maestro")) {
		t.Errorf("got\n%s\nwant the session of the service", out)
	}
}
