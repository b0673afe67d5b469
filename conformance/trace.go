package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of an exchange in a report.
const (
	maxTraceText = 400 // bytes shown of one text
	traceHead    = 40  // first texts kept
	traceTail    = 120 // last texts kept
)

// trace records the texts of a scenario. Readers and the scenario write to it.
type trace struct {
	mu      sync.Mutex
	head    []moment
	tail    []moment // at most 2*traceTail, cut back to traceTail
	dropped int
}

// A moment is one text on one link.
type moment struct {
	at   time.Duration // since the scenario began
	text string
}

func (t *trace) add(at time.Duration, peer, direction string, text []byte) {
	m := moment{at, fmt.Sprintf("%s %s %s", peer, direction, abridge(text, maxTraceText))}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.head) < traceHead {
		t.head = append(t.head, m)
		return
	}
	t.tail = append(t.tail, m)
	if len(t.tail) >= 2*traceTail {
		t.dropped += len(t.tail) - traceTail
		t.tail = slices.Delete(t.tail, 0, len(t.tail)-traceTail)
	}
}

// lines renders the exchange in order of time.
func (t *trace) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	byTime := func(a, b moment) int { return int(a.at - b.at) }
	head, tail, dropped := slices.Clone(t.head), slices.Clone(t.tail), t.dropped
	if over := len(tail) - traceTail; over > 0 {
		tail, dropped = tail[over:], dropped+over
	}
	slices.SortStableFunc(head, byTime)
	slices.SortStableFunc(tail, byTime)
	lines := make([]string, 0, len(head)+len(tail)+1)
	for _, m := range head {
		lines = append(lines, m.String())
	}
	if dropped > 0 {
		lines = append(lines, fmt.Sprintf("... %d texts left out ...", dropped))
	}
	for _, m := range tail {
		lines = append(lines, m.String())
	}
	return lines
}

func (m moment) String() string {
	return fmt.Sprintf("%8.3fs %s", m.at.Seconds(), m.text)
}

// abridge shows at most limit bytes of a text, on one line.
func abridge(text []byte, limit int) string {
	if len(text) <= limit {
		return strings.ToValidUTF8(strings.ReplaceAll(string(text), "\n", `\n`), "\uFFFD")
	}
	return fmt.Sprintf("%s... (%d bytes)", abridge(text[:limit], limit), len(text))
}
