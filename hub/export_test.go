package hub

// Snapshots returns the bytes of snapshots that clients have not been written yet.
func (m *Memory) Snapshots() int64 { return m.snapshots.Load() }

// Followers returns how many sockets and streams are attached.
func (h *Hub) Followers() int { return h.roster.len() }

// Draining reports whether the session is in phaseDraining.
func (h *Hub) Draining() bool { return h.lifeNow().phase == phaseDraining }
