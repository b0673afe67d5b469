package lease_test

import (
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/lease"
)

// An action admitted under an earlier generation is refused, even if its sender
// holds the lease again.
func Example() {
	now := time.Date(2026, 4, 27, 9, 0, 0, 0, time.UTC)
	l := lease.New(45 * time.Second)
	fmt.Println(l.Claim("alice", now))
	admitted := l.Generation()

	fmt.Println(l.Claim("bob", now))
	fmt.Println(l.TakeOver("bob", now))
	fmt.Println(l.TakeOver("alice", now))
	fmt.Println(l.Check("alice", admitted))
	// Output:
	// <nil>
	// lease: held by another
	// alice
	// bob
	// lease: stale generation
}
