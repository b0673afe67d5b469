package journal

// Parts are what an entry of kind Joint consists of. Any part may be empty. The entry
// has one cursor, so a follower gets at most one frame of it.
type Parts struct {
	Open      []byte // JSON of a public event, for followers
	OpenClass Class

	// Inner replaces Open for followers that do not skip InnerClass.
	Inner      []byte
	InnerClass Class

	Hidden []byte // data of the owner; never shown
}

// Joint returns an entry with the given parts. The body of the entry is InnerClass,
// Open, Inner and Hidden, and its text span is Inner.
func (p *Parts) Joint() Entry {
	size := 1 + len(p.Open) + len(p.Inner)
	body := make([]byte, 0, size+len(p.Hidden))
	body = append(append(append(append(body, byte(p.InnerClass)), p.Open...), p.Inner...), p.Hidden...)
	return Entry{Kind: Joint, Class: p.OpenClass, TextStart: uint32(1 + len(p.Open)), TextEnd: uint32(size), Body: body}
}

// Parts returns the parts of an entry. They are parts of its body. A message has only
// Open, and an entry of another kind only Hidden.
func (e *Entry) Parts() Parts {
	switch e.Kind {
	case Message:
		return Parts{Open: e.Body, OpenClass: e.Class}
	case Joint:
		return Parts{
			Open: e.Body[1:e.TextStart], OpenClass: e.Class,
			Inner: e.Body[e.TextStart:e.TextEnd], InnerClass: Class(e.Body[0]),
			Hidden: e.Body[e.TextEnd:],
		}
	}
	return Parts{Hidden: e.Body}
}

// Seen returns the entry as followers see it that skip the classes in skip. It reports
// false if they do not see it.
func (e *Entry) Seen(skip Class) (Entry, bool) {
	open, inner := e.variants()
	if inner != nil && inner.Class&skip == 0 {
		return *inner, true
	}
	return *open, !open.Kind.hidden() && open.Class&skip == 0
}

// variants returns the entry as followers see it, and, if that is not nil, as those do
// that do not skip the class of inner.
func (e *Entry) variants() (open, inner *Entry) {
	if e.Kind != Joint {
		return e, nil
	}
	p := e.Parts()
	open = &Entry{Cursor: e.Cursor, Time: e.Time, Kind: Message, Class: p.OpenClass, Body: p.Open}
	if len(p.Open) == 0 {
		open.Kind = Note
	}
	if len(p.Inner) > 0 {
		inner = &Entry{Cursor: e.Cursor, Time: e.Time, Kind: Message, Class: p.InnerClass, Body: p.Inner}
	}
	return open, inner
}
