package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
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
	var stderr bytes.Buffer // of the goroutine until ended
	ended := make(chan error, 1)
	go func() { // ends with stop
		ended <- run(ctx, []string{"--listen", "127.0.0.1:0", "--script", script, "--quiet"}, in, &stderr)
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
	if stderr.Len() > 0 {
		t.Errorf("got %s, want no log", &stderr)
	}
}

func TestWrongUseIsAnError(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want error // nil is any but those
		says string
	}{
		{[]string{"--listen", "nowhere:x"}, nil, ""},
		{[]string{"--script", "absent.json"}, nil, ""},
		{[]string{"--unknown"}, errUsage, "-unknown"},
		{[]string{"--listen", "127.0.0.1:0", "extra"}, errUsage, `too many arguments: ["extra"]`},
		{[]string{"--help"}, flag.ErrHelp, "-script"},
	} {
		var stderr strings.Builder
		err := run(t.Context(), tt.args, io.Discard, &stderr)
		wrong := errors.Is(err, errUsage) || errors.Is(err, flag.ErrHelp)
		if err == nil || tt.want == nil && wrong || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(stderr.String(), tt.says) {
			t.Errorf("%q: got %v and %s, want %v and %q", tt.args, err, &stderr, tt.want, tt.says)
		}
	}
}
