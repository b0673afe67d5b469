package mask

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestLogsAreMasked(t *testing.T) {
	var out bytes.Buffer
	log := Log(slog.New(slog.NewTextHandler(&out, nil)), Command).With("with", "TOKEN=a").WithGroup("g")
	log.Info("said PASSWORD=b", "text", "API_KEY=c", "error", errors.New("authorization: bearer d"), "n", 7)
	for _, want := range []string{`msg="said PASSWORD=***"`, `with="TOKEN=***"`, `g.text="API_KEY=***"`, `g.error="authorization: ***"`, "g.n=7"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want %s in it", out.String(), want)
		}
	}
}
