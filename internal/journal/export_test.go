package journal

// WindowBytes returns the memory of all windows in bytes.
func (s *Shared) WindowBytes() int64 { return s.used.Load() }
