package turn

import "sync"

const (
	maxNotes = 16  // that wait for the next run; more are dropped
	maxSaid  = 128 // texts that AddOnce remembers; beyond it they may be repeated
)

// Notes are texts for clients that wait for the next run. The zero value is empty. Its
// methods may be called from any goroutine.
type Notes struct {
	mu      sync.Mutex
	waiting []string
	said    map[string]bool // texts given to AddOnce
}

// Add adds a text. It drops the text if 16 texts are waiting.
func (n *Notes) Add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) < maxNotes {
		n.waiting = append(n.waiting, text)
	}
}

// AddOnce is Add for a text that need not be repeated.
func (n *Notes) AddOnce(text string) {
	n.mu.Lock()
	said := n.said[text]
	if n.said == nil || len(n.said) == maxSaid {
		n.said = map[string]bool{}
	}
	n.said[text] = true
	n.mu.Unlock()
	if !said {
		n.Add(text)
	}
}

// Take removes the texts and returns them, oldest first.
func (n *Notes) Take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	texts := n.waiting
	n.waiting = nil
	return texts
}
