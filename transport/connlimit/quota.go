package connlimit

import "github.com/seed-028515a8/maestro/contracts"

// A quota is an amount that principals share. The limiter's lock guards it.
type quota struct {
	// Static.
	all      int              // the whole amount
	each     int              // for one principal other than the owner
	confined int              // for all confined principals together; the rest is reserved
	full     *contracts.Error // refuses beyond all and beyond confined
	excess   *contracts.Error // refuses beyond each

	taken       int
	byConfined  int            // part of taken
	byPrincipal map[string]int // parts of taken by principal ID; none is zero
	refused     Refused
}

func newQuota(all, each, reserved int, what string) quota {
	return quota{
		all: all, each: each, confined: all - reserved, byPrincipal: map[string]int{},
		full:   &contracts.Error{Code: contracts.CodeOverloaded, Message: "too many " + what},
		excess: &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many " + what + " of one principal"},
	}
}

// take takes n for a principal, or refuses and takes nothing.
func (q *quota) take(p contracts.Principal, n int) error {
	switch {
	case q.taken+n > q.all, p.Confined() && q.byConfined+n > q.confined:
		q.refused.Full++
		return q.full
	case !p.Owner() && q.byPrincipal[p.ID]+n > q.each:
		q.refused.Excess++
		return q.excess
	}
	q.add(p, n)
	return nil
}

func (q *quota) add(p contracts.Principal, n int) {
	q.taken += n
	if p.Confined() {
		q.byConfined += n
	}
	if q.byPrincipal[p.ID] += n; q.byPrincipal[p.ID] == 0 {
		delete(q.byPrincipal, p.ID)
	}
}
