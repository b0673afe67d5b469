package judge

import (
	"context"
	"strings"
	"testing"
	"time"
)

// patience bounds what a test waits for; it only matters when something hangs.
const patience = 30 * time.Second

func TestProcessIsReadyAndStops(t *testing.T) {
	p, ready, err := Start(t.Context(), []string{"sh", "-c", `echo '{"baseUrl":"http://h","sessionId":"s","more":1}'; echo trouble >&2; cat >/dev/null`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Ready{"http://h", "s"}); ready != want {
		t.Errorf("got %+v, want %+v", ready, want)
	}
	if err := p.Stop(patience); err != nil {
		t.Error(err)
	}
	if got := p.Diagnostics(); got != "trouble\n" {
		t.Errorf("got diagnostics %q, want trouble", got)
	}
}

func TestProcessThatIsNotReadyIsKilled(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"ended":  {"echo broken >&2; exit 3", "broken"},
		"chatty": {"echo hello; exec sleep 600", "no ready object"},
		"nobody": {`echo '{"baseUrl":"http://h"}'; exec sleep 600`, "no ready object"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Start(t.Context(), []string{"sh", "-c", tt.script}, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Start(ctx, []string{"sleep", "600"}, nil); err == nil {
		t.Error("got a process, want none once the context has ended")
	}
}

func TestProcessThatStaysIsKilled(t *testing.T) {
	p, _, err := Start(t.Context(), []string{"sh", "-c", `echo '{"baseUrl":"http://h","sessionId":"s"}'; exec sleep 600`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(time.Millisecond); err == nil {
		t.Error("got no error of a process that did not end with its input")
	}
	<-p.exited
}
