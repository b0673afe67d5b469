package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// TestMain runs the program itself in the processes that the tests start.
func TestMain(m *testing.M) {
	if os.Getenv("LOCALMODEL_SERVE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestServerSaysWhereItIs(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(script, []byte(`[{"turns":[{"text":"from the file"}]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(t.Context(), os.Args[0], "--listen", "127.0.0.1:0", "--script", script)
	program.Env = append(os.Environ(), "LOCALMODEL_SERVE=1")
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = program.Process.Kill()
		_ = program.Wait() // says that it was killed
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("got no address")
	}
	res, err := http.Post(lines.Text()+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(body), "from th") {
		t.Errorf("got %s and %v, want what the script says", body, err)
	}
}

func TestWhatCannotBeServedIsAnError(t *testing.T) {
	if err := serve("nowhere:x", "", localmodel.Options{}, io.Discard); err == nil {
		t.Error("got no error for an address that is none")
	}
	if err := serve("127.0.0.1:0", "absent.json", localmodel.Options{}, io.Discard); err == nil {
		t.Error("got no error for a script that is absent")
	}
}
