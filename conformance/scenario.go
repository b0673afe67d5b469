package conformance

import (
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Scenario is one story told to the server, and the rules it judges.
type Scenario struct {
	Name  string   // group/promise, unique: what --run matches
	Title string   // the promise as a sentence
	Rules []string // rule numbers (R36, A44), decisions (D13), or sections of the attach mapping (9.5)
	Needs Needs
	Slow  bool // waits for the server's own clock; started first

	// Run plays the story. It returns when everything was as it should be;
	// failing and skipping end its goroutine from inside.
	Run func(*Session)
}

// Needs says what a scenario cannot do without. Its zero value runs anywhere.
type Needs struct {
	Transport Transport                  // empty: either
	Strict    Strictness                 // whether the server refuses additions (D13)
	Seed      bool                       // the seed profile
	Operation contracts.UtilityOperation // a utility the server must offer
}

// A Transport is a way to reach a server.
type Transport string

const (
	Either Transport = ""
	Stdio  Transport = "stdio" // a process per scenario
	Socket Transport = "ws"    // one server for all, a session per scenario
)

// Strictness says which kind of server a scenario is about.
type Strictness int

const (
	AnyStrictness Strictness = iota
	OnlyTolerant             // the server ignores additions, the default (D13)
	OnlyStrict               // the server was started to refuse them
)

// Scenarios returns all scenarios in the order of their rules.
func Scenarios() []Scenario {
	return slices.Concat(framing(), handshake(), runs(), requests(), endings(), states(),
		leases(), handovers(), viewers(), streams(), resumes(), answers(), sockets(), utilities())
}

// reasonToSkip says why a scenario cannot run, or nothing.
func (n Needs) reasonToSkip(c *Config) string {
	transport := Stdio
	if isSocketTarget(c.Target) {
		transport = Socket
	}
	switch {
	case n.Transport != Either && n.Transport != transport:
		return "needs a " + string(n.Transport) + " target"
	case n.Strict == OnlyStrict && !c.Strict:
		return "needs a strict server"
	case n.Strict == OnlyTolerant && c.Strict:
		return "needs a tolerant server"
	case n.Seed && c.Profile == contracts.ProfilePublic:
		return "needs the seed profile"
	}
	return ""
}

// Defaults of Config.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultPatience = 5 * time.Second
	DefaultParallel = 8
)
