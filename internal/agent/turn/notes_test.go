package turn

import (
	"fmt"
	"slices"
	"testing"
)

func TestNotesWaitInOrderAndAreBounded(t *testing.T) {
	var n Notes
	n.AddOnce("once")
	n.Add("again")
	n.AddOnce("once")
	n.Add("again")
	if got, want := n.Take(), []string{"once", "again", "again"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	n.AddOnce("once")
	if got := n.Take(); len(got) != 0 {
		t.Errorf("got %q after Take, want nothing", got)
	}
	for i := range 200 {
		n.AddOnce(fmt.Sprint("text ", i))
	}
	if got := n.Take(); len(got) != 16 || got[15] != "text 15" {
		t.Errorf("got %q, want the first 16 texts", got)
	}
}
