package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerSaysWhereItIsAndEnds(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(script, []byte(`{"default":{"turns":[{"text":"from the file"}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { // ends with stop
		ended <- run(ctx, []string{"--listen", "127.0.0.1:0", "--script", script}, in, io.Discard)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal(<-ended)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Post(lines.Text()+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || !strings.Contains(string(body), "from the file") {
		t.Errorf("got %s and %v, want what the script says", body, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("got %v, want an end without an error", err)
	}
}

func TestWrongUseIsAnError(t *testing.T) {
	for _, args := range [][]string{{"--listen", "nowhere:x"}, {"--script", "absent.json"}, {"--unknown"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: got no error, want one", args)
		}
	}
}
