package serverreq

import (
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const maxRemembered = 256 // resolutions; the oldest is dropped

// A history holds the latest resolutions, oldest first, for answers that come too late.
type history []pastResolution

// A pastResolution is the kept part of a resolution.
type pastResolution struct {
	event contracts.ServerRequestResolved
	from  string
	at    time.Time
}

func (m *history) add(r *Resolution) {
	p := pastResolution{event: r.Event, from: r.From, at: r.At}
	p.event.Reason = "" // not used, and may be long
	if len(*m) == maxRemembered {
		*m = slices.Delete(*m, 0, 1)
	}
	*m = append(*m, p)
}

// describe returns how the request with the id ended. If no request has that id, it
// looks for a call with the id and one of kinds. It returns nil if there is none.
func (m history) describe(id string, kinds []contracts.RequestType) map[string]string {
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
func (m history) last(match func(*contracts.ServerRequestResolved) bool) *pastResolution {
	for i := range slices.Backward(m) {
		if match(&m[i].event) {
			return &m[i]
		}
	}
	return nil
}
