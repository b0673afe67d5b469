//go:build unix

package proc

import (
	"os"
	"testing"
)

func TestUnreadBytesOfAPipeAreCounted(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, text := range []string{"", "abc", "defg"} {
		before := Unread(r)
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if got := Unread(r); got != before+len(text) {
			t.Errorf("after %q: got %d, want %d", text, got, before+len(text))
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := Unread(r); got != 0 {
		t.Errorf("closed: got %d, want 0", got)
	}
}
