package auth

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// A usage says how often a share was used, and when and from where last.
type usage struct {
	Uses int64     `json:"uses,omitempty"`          // requests that the share admitted
	At   time.Time `json:"last_used_at,omitzero"`   // in UTC
	From string    `json:"last_used_from,omitzero"` // IP address
}

// usages are those of the shares. They are in memory, and written to the file with the
// next change of the shares or at the end of the process.
type usages struct {
	mu      sync.Mutex
	byID    map[string]*usage // of the live shares, and of expired ones until the next change
	changed atomic.Bool       // since the last write of the file
}

// note counts a use of a share. It ignores an unknown one, which was just revoked.
func (u *usages) note(id, remote string, now time.Time) {
	addr, _ := netip.ParseAddrPort(remote) // an invalid address is shown as such
	u.mu.Lock()
	defer u.mu.Unlock()
	if one := u.byID[id]; one != nil {
		one.Uses, one.At, one.From = one.Uses+1, now.UTC(), addr.Addr().WithZone("").String()
		u.changed.Store(true)
	}
}

// of returns the usage of a share.
func (u *usages) of(id string) usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one := u.byID[id]; one != nil {
		return *one
	}
	return usage{}
}

// keep forgets the usages of other shares than the live ones, and returns copies of the
// live ones for the file.
func (u *usages) keep(live []*share) []*share {
	u.mu.Lock()
	defer u.mu.Unlock()
	byID, copies := make(map[string]*usage, len(live)), make([]*share, 0, len(live))
	for _, one := range live {
		now := u.byID[one.ID]
		if now == nil {
			now = &usage{}
		}
		c := *one
		c.Usage, byID[one.ID] = *now, now
		copies = append(copies, &c)
	}
	u.byID = byID
	u.changed.Store(false)
	return copies
}

// flush writes the usages to the file if they have changed.
func (s *shares) flush(now time.Time) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if !s.usages.changed.Load() {
		return nil
	}
	return s.save(s.live(now))
}
