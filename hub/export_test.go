package hub

// Snapshots returns the bytes of snapshots that clients have not been written yet.
func (m *Memory) Snapshots() int64 { return m.snapshots.Load() }
