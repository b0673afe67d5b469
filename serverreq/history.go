package serverreq

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

const maxRemembered = 256 // resolutions; the oldest is dropped

// A history holds the latest resolutions, oldest first, for answers that come too late.
type history []Resolution

func (m *history) add(r Resolution) {
	r.Request, r.Content, r.Event.Reason = nil, nil, "" // not used, and may be long
	if len(*m) == maxRemembered {
		*m = slices.Delete(*m, 0, 1)
	}
	*m = append(*m, r)
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
		"resolution":  string(p.Event.Resolution),
		"resolved_by": string(p.Event.ResolvedBy),
		"resolved_at": p.At.UTC().Format("2006-01-02T15:04:05.000Z07:00"),
	}
	if p.From != "" {
		about["connection_id"] = p.From
	}
	return about
}

// last returns the latest resolution that matches, or nil.
func (m history) last(match func(*contracts.ServerRequestResolved) bool) *Resolution {
	for i := range slices.Backward(m) {
		if match(&m[i].Event) {
			return &m[i]
		}
	}
	return nil
}
