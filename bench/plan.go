package main

import (
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A plan is how much is measured. Sizes are those of the targets unless the run
// is quick.
type plan struct {
	quick bool
	reps  int

	bursts []burstPlan

	paced struct {
		viewers int
		rates   []int         // messages per second, rising; the first at which the naive hub fills a core is used
		probe   time.Duration // how long each rate is tried
		length  time.Duration
	}
	publish struct {
		followers []int // the first is the base of the ratio
		messages  int
		rate      int // low enough for all followers to be idle again
	}
	memory   struct{ viewers int }
	terminal struct {
		lines   int   // that a program writes
		clients []int // that follow
	}
	output struct {
		bytes int64
		rate  int // bytes a second that the client takes
	}
	acp struct {
		messages int
		rate     int // a second; low enough for everybody to be idle again
	}
	attach struct {
		counts []int
		least  int // viewers a reading is made of; small crowds come several times
		base   int // cost per viewer is compared with this count
		judged int // at this count
	}
	stall struct {
		viewers, stopped int
		flood            int           // messages at once before the clock starts: they fill the kernel's buffers
		rate             int           // low enough that a processor is free: the wait is to be the server's doing
		timeout          time.Duration // of the server's writes
		length           time.Duration // beyond the timeout, so that stopped viewers are closed
	}
	search struct {
		files   int // to be found
		typed   int // searches right after the first
		queries int // of each kind, later on
		created int // files, one after the other
	}
	start   struct{ runs int }
	journal struct {
		rate      int
		length    time.Duration
		saturated int // events
	}
	growth growthPlan
}

// A growthPlan is the sizes of growth.
type growthPlan struct {
	watch struct {
		files, sessions int
		idle            time.Duration // before and while the idle server is looked at
	}
	search    struct{ files, queries int }
	back      struct{ base, viewers int }
	presence  struct{ viewers, changes int }
	response  struct{ viewers int }
	questions struct {
		size   int // of one
		events int
	}
	state struct {
		viewers, question int
		every             time.Duration // from one viewer to the next
		hold              time.Duration // how long viewers read slowly once the last has come
	}
	history struct{ sessions, events int }
	replay  struct{ events, replays, prompts int }
	list    struct{ sessions, times int }
	post    struct{ connections, times int }
	prompt  int // bytes
	retain  int // bytes of events
}

// A burstPlan is one size of the fan-out as fast as possible.
type burstPlan struct{ viewers, messages int }

func fullPlan(reps int) plan {
	p := plan{reps: reps, bursts: []burstPlan{{1000, 2000}, {100, 20_000}}}
	p.paced.viewers = 1000
	p.paced.rates = []int{300, 400, 500, 600, 800, 1000, 1300}
	p.paced.probe, p.paced.length = 3*time.Second, 5*time.Second
	p.publish.followers = []int{1, 10_000}
	p.publish.messages, p.publish.rate = 40, 8
	p.memory.viewers = 2000
	p.terminal.lines, p.terminal.clients = 8_000_000, []int{1, 4}
	p.output.bytes, p.output.rate = 1<<30, 40e6
	p.acp.messages, p.acp.rate = 2000, 400
	p.attach.counts, p.attach.least, p.attach.base, p.attach.judged = []int{10, 100, 1000, 2000}, 200, 100, 1000
	p.stall.viewers, p.stall.stopped = 1000, 100
	p.stall.flood, p.stall.rate = 20_000, 100
	p.stall.timeout, p.stall.length = contracts.DefaultWriteTimeout, contracts.DefaultWriteTimeout+2*time.Second
	p.search.files, p.search.typed, p.search.queries, p.search.created = 100_000, 20, 300, 20
	p.start.runs = 20
	p.journal.rate, p.journal.length, p.journal.saturated = 500, 3*time.Second, 500_000
	g := &p.growth
	g.watch.files, g.watch.sessions, g.watch.idle = 100_000, 20, 2*time.Second
	g.search.files, g.search.queries = 500_000, 120
	g.back.base, g.back.viewers = 1000, 6000
	g.presence.viewers, g.presence.changes = 100, 8
	g.response.viewers = 1000
	g.questions.size, g.questions.events = 200<<10, 50_000
	g.state.viewers, g.state.question, g.state.every, g.state.hold = 100, 200<<10, 30*time.Millisecond, 3*time.Second
	g.history.sessions, g.history.events = 300, 20_000
	g.replay.events, g.replay.replays, g.replay.prompts = 500_000, 16, 300
	g.list.sessions, g.list.times = 10_000, 20
	g.post.connections, g.post.times = 64, 2000
	g.prompt, g.retain = 240<<10, 50_000_000
	return p
}

// quickPlan shows that everything runs; its numbers mean little.
func quickPlan() plan {
	p := plan{quick: true, reps: 1, bursts: []burstPlan{{100, 1000}, {10, 2000}}}
	p.paced.viewers = 50
	p.paced.rates = []int{200}
	p.paced.probe, p.paced.length = time.Second/4, time.Second
	p.publish.followers = []int{1, 200}
	p.publish.messages, p.publish.rate = 10, 20
	p.memory.viewers = 200
	p.terminal.lines, p.terminal.clients = 100_000, []int{1, 4}
	p.output.bytes, p.output.rate = 32<<20, 20e6
	p.acp.messages, p.acp.rate = 100, 400
	p.attach.counts, p.attach.least, p.attach.base, p.attach.judged = []int{10, 50}, 20, 10, 50
	p.stall.viewers, p.stall.stopped = 50, 5
	p.stall.flood, p.stall.rate = 20_000, 500
	p.stall.timeout, p.stall.length = time.Second, 2*time.Second
	p.search.files, p.search.typed, p.search.queries, p.search.created = 2000, 5, 20, 3
	p.start.runs = 3
	p.journal.rate, p.journal.length, p.journal.saturated = 500, time.Second/2, 20_000
	g := &p.growth
	g.watch.files, g.watch.sessions, g.watch.idle = 2000, 20, time.Second/2
	g.search.files, g.search.queries = 3000, 10
	g.back.base, g.back.viewers = 50, 200
	g.presence.viewers, g.presence.changes = 20, 2
	g.response.viewers = 50
	g.questions.size, g.questions.events = 20<<10, 5000
	g.state.viewers, g.state.question, g.state.every, g.state.hold = 10, 20<<10, 10*time.Millisecond, time.Second/2
	g.history.sessions, g.history.events = 20, 20_000
	g.replay.events, g.replay.replays, g.replay.prompts = 20_000, 4, 30
	g.list.sessions, g.list.times = 200, 5
	g.post.connections, g.post.times = 64, 100
	g.prompt, g.retain = 240<<10, 5_000_000
	return p
}
