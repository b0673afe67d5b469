package tool

import (
	"fmt"
	"strings"
)

// A telling makes text of what a search found.
type telling struct {
	mode   string
	limit  int
	around int

	b     strings.Builder
	told  int  // files or lines that match
	more  bool // than fits
	large int  // files that were not looked at
}

// all tells of hits in order.
func (t *telling) all(found []*hits) {
	for _, h := range found {
		switch {
		case h == nil:
		case h.large:
			t.large++
		case t.told >= t.limit:
			t.more = true
		case t.mode == modeContent:
			t.content(h)
		case t.mode == modeCount:
			t.add(fmt.Sprintf("%s: %d\n", valid(h.path), h.count))
			t.told++
		default:
			t.add(valid(h.path) + "\n")
			t.told++
		}
	}
}

// add writes whole lines if there is room, and nothing once there was not.
func (t *telling) add(text string) {
	if t.more = t.more || t.b.Len()+len(text) > maxMatchText; !t.more {
		t.b.WriteString(text)
	}
}

// content tells of lines, in the form of other such programs: a colon after the
// number of one that matches, a hyphen after that of one around it.
func (t *telling) content(h *hits) {
	if t.around > 0 && t.told > 0 {
		t.add("--\n")
	}
	path, last := valid(h.path), 0
	for _, l := range h.lines {
		switch {
		case t.told >= t.limit && (l.match || l.number == 0 || l.number > last+t.around):
			t.more = true // this one, or the one that it leads to
			return
		case l.number == 0:
			t.add("--\n")
		case l.match:
			t.told++
			last = l.number
			t.add(fmt.Sprintf("%s:%d:%s\n", path, l.number, l.text))
		default:
			t.add(fmt.Sprintf("%s-%d-%s\n", path, l.number, l.text))
		}
	}
	t.more = t.more || h.count > t.limit
}

// text returns what was told, and what could not be.
func (t *telling) text() string {
	if t.told == 0 {
		t.b.WriteString("No matches.\n")
	}
	if t.more {
		t.b.WriteString("[There are more matches. Look for something narrower, or set limit.]\n")
	}
	if t.large > 0 {
		fmt.Fprintf(&t.b, "[%s of more than %d MiB not looked at]\n", count(t.large, "file"), maxFileBytes>>20)
	}
	return t.b.String()
}
