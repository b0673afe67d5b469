package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Bounds of what is kept of an exchange.
const (
	maxTraceLines = 400
	maxTraceText  = 1000
)

// A trace is what was sent and received, for the report of a failure. It may
// be used from any goroutine.
type trace struct {
	began time.Time

	mu   sync.Mutex
	kept []string // the first half and, from then on, the latest
	left int      // how many are missing between the halves
}

// add notes one text.
func (t *trace) add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxTraceText {
		text = fmt.Sprintf("%s... (%d bytes)", text[:maxTraceText], len(text))
	}
	text = fmt.Sprintf("%7.3fs %s", time.Since(t.began).Seconds(), strings.ReplaceAll(text, "\n", `\n`))
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.kept) == maxTraceLines {
		t.kept = append(t.kept[:maxTraceLines/2], t.kept[maxTraceLines/2+1:]...)
		t.left++
	}
	t.kept = append(t.kept, text)
}

// lines returns what is kept, in order.
func (t *trace) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left == 0 {
		return t.kept
	}
	gap := fmt.Sprintf("(%d texts left out)", t.left)
	return append(append(append([]string{}, t.kept[:maxTraceLines/2]...), gap), t.kept[maxTraceLines/2:]...)
}
