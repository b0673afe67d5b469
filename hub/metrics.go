package hub

import (
	"sync"
	"sync/atomic"

	"github.com/seed-028515a8/maestro/contracts"
)

// Metrics counts what happened since the hub was made. Every bound of the hub
// has a counter of the times it was met.
type Metrics struct {
	Attached      atomic.Int64 // handshakes completed
	SlowConsumers atomic.Int64 // connections closed because they did not take what was written
	Silent        atomic.Int64 // connections closed because nothing was heard from them
	AgentWaits    atomic.Int64 // times the agent waited for a local client
	LeaseChanges  atomic.Int64
	Asked         atomic.Int64 // server requests opened
	Acks          atomic.Int64 // ws.ack frames
	UnknownKeys   atomic.Int64 // keys ignored in requests (D13)

	mu       sync.Mutex
	refusals map[contracts.Code]int64
	resets   map[contracts.ResetReason]int64
}

// refused counts a refusal.
func (h *Hub) refused(code contracts.Code) {
	h.metrics.refused(code)
	h.opts.Observer.Refused(code)
}

func (m *Metrics) refused(code contracts.Code) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refusals == nil {
		m.refusals = map[contracts.Code]int64{}
	}
	m.refusals[code]++
}

func (m *Metrics) reset(why contracts.ResetReason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resets == nil {
		m.resets = map[contracts.ResetReason]int64{}
	}
	m.resets[why]++
}

// Refusals returns how many frames were refused with code.
func (m *Metrics) Refusals(code contracts.Code) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refusals[code]
}

// Resets returns how many clients had to start over for the reason.
func (m *Metrics) Resets(why contracts.ResetReason) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resets[why]
}

// Metrics returns the hub's counters.
func (h *Hub) Metrics() *Metrics { return &h.metrics }

// Followers returns how many connections are attached.
func (h *Hub) Followers() int { return h.roster.len() }
