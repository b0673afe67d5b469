package lease_test

import (
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/lease"
)

// A grant to a new holder begins a new generation.
func Example() {
	now := time.Date(2026, 4, 27, 9, 0, 0, 0, time.UTC)
	l := lease.New(45*time.Second, 0)
	l.Grant("alice", now)
	l.Grant("alice", now) // only a sign of life
	fmt.Println(l.Generation())
	l.Grant("bob", now)
	fmt.Println(l.Generation())
	// Output:
	// 1
	// 2
}
