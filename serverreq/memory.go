package serverreq

import (
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const maxRemembered = 256 // resolutions; the oldest is forgotten

// memory holds the latest resolutions, for those who answer too late.
type memory struct {
	past []past // a ring once it is full
	next int    // where the next one goes
}

// past is what is remembered of one resolution.
type past struct {
	event contracts.ServerRequestResolved
	from  string
	at    time.Time
}

func (m *memory) keep(r *Resolution) {
	p := past{event: r.Event, from: r.From, at: r.At}
	p.event.Reason = "" // may be long, and nobody asks for it
	if len(m.past) < maxRemembered {
		m.past = append(m.past, p)
	} else {
		m.past[m.next] = p
	}
	m.next = (m.next + 1) % maxRemembered
}

// describe says how the request with the given id ended, or how the call did
// if kinds are given and no request has that id. It returns nil if it does not
// know.
func (m *memory) describe(id string, kinds []contracts.RequestType) map[string]string {
	p := m.last(func(e *contracts.ServerRequestResolved) bool { return e.RequestID == id })
	if p == nil {
		p = m.last(func(e *contracts.ServerRequestResolved) bool {
			return e.CallID == id && slices.Contains(kinds, e.RequestType)
		})
	}
	if p == nil {
		return nil
	}
	about := map[string]string{
		"resolution":  string(p.event.Resolution),
		"resolved_by": string(p.event.ResolvedBy),
		"resolved_at": p.at.UTC().Format("2006-01-02T15:04:05.000Z07:00"),
	}
	if p.from != "" {
		about["connection_id"] = p.from
	}
	return about
}

// last returns the latest resolution that matches, or nil.
func (m *memory) last(match func(*contracts.ServerRequestResolved) bool) *past {
	for age := range m.past {
		i := (m.next - 1 - age + 2*maxRemembered) % maxRemembered
		if match(&m.past[i].event) {
			return &m.past[i]
		}
	}
	return nil
}
