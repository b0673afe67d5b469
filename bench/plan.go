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
	page struct {
		events       int           // of the long session
		opens        int           // times
		scroll       time.Duration // upwards; half as long downwards
		answers      int
		chunks, rate int // of an answer
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
	pages   struct{ events, reads int }
	replay  struct{ events, replays, prompts int }
	list    struct{ sessions, times int }
	post    struct{ connections, times int }
	hecate  struct{ viewers, chunks int }

	overview struct {
		sessions, followers int
		length              time.Duration
	}
	prompt int // bytes
	retain int // bytes of events
}

// A burstPlan is one size of the fan-out as fast as possible.
type burstPlan struct{ viewers, messages int }

// newPlan returns the sizes of a full run, or of a quick one: it shows that everything
// runs, and its numbers mean little.
func newPlan(reps int, quick bool) plan {
	p := plan{quick: quick, reps: reps, bursts: []burstPlan{{1000, 2000}, {100, 20_000}}}
	n := func(full, small int) int { return pick(quick, full, small) }
	d := func(full, small time.Duration) time.Duration { return pick(quick, full, small) }
	p.paced.rates = []int{300, 400, 500, 600, 800, 1000, 1300}
	p.attach.counts = []int{10, 100, 1000, 2000}
	if quick {
		p.reps, p.bursts = 1, []burstPlan{{100, 1000}, {10, 2000}}
		p.paced.rates, p.attach.counts = []int{200}, []int{10, 50}
	}
	p.paced.viewers, p.paced.probe, p.paced.length = n(1000, 50), d(3*time.Second, time.Second/4), d(5*time.Second, time.Second)
	p.publish.followers, p.publish.messages, p.publish.rate = []int{1, n(10_000, 200)}, n(40, 10), n(8, 20)
	p.memory.viewers = n(2000, 200)
	p.terminal.lines, p.terminal.clients = n(8_000_000, 100_000), []int{1, 4}
	p.output.bytes, p.output.rate = int64(n(1<<30, 32<<20)), n(40e6, 20e6)
	p.acp.messages, p.acp.rate = n(2000, 100), 400
	p.attach.least, p.attach.base, p.attach.judged = n(200, 20), n(100, 10), n(1000, 50)
	p.stall.viewers, p.stall.stopped, p.stall.flood, p.stall.rate = n(1000, 50), n(100, 5), 20_000, n(100, 500)
	p.stall.timeout = d(contracts.DefaultWriteTimeout, time.Second)
	p.stall.length = p.stall.timeout + d(2*time.Second, time.Second)
	p.search.files, p.search.typed, p.search.queries, p.search.created = n(100_000, 2000), n(20, 5), n(300, 20), n(20, 3)
	p.start.runs = n(20, 3)
	p.journal.rate, p.journal.length, p.journal.saturated = 500, d(3*time.Second, time.Second/2), n(500_000, 20_000)
	p.page.events, p.page.scroll = n(100_000, 3000), d(12*time.Second, time.Second)
	p.page.opens, p.page.answers, p.page.chunks, p.page.rate = n(5, 1), n(10, 2), n(1000, 100), 300
	g := &p.growth
	g.watch.files, g.watch.sessions, g.watch.idle = n(100_000, 2000), 20, d(2*time.Second, time.Second/2)
	g.search.files, g.search.queries = n(500_000, 3000), n(120, 10)
	g.back.base, g.back.viewers = n(1000, 50), n(6000, 200)
	g.presence.viewers, g.presence.changes = n(100, 20), n(8, 2)
	g.response.viewers = n(1000, 50)
	g.questions.size, g.questions.events = n(200<<10, 20<<10), n(50_000, 5000)
	g.state.viewers, g.state.question = n(100, 10), n(200<<10, 20<<10)
	g.state.every, g.state.hold = d(30*time.Millisecond, 10*time.Millisecond), d(3*time.Second, time.Second/2)
	g.history.sessions, g.history.events = n(300, 20), 20_000
	g.pages.events, g.pages.reads = n(1_000_000, 20_000), n(50, 5)
	g.replay.events, g.replay.replays, g.replay.prompts = n(500_000, 20_000), n(16, 4), n(300, 30)
	g.list.sessions, g.list.times = n(10_000, 200), n(20, 5)
	g.post.connections, g.post.times = 64, n(2000, 100)
	g.hecate.viewers, g.hecate.chunks = n(1000, 20), n(2000, 200)
	g.overview.sessions, g.overview.followers, g.overview.length = n(1000, 50), n(200, 10), d(10*time.Second, time.Second)
	g.prompt, g.retain = 240<<10, n(50_000_000, 5_000_000)
	return p
}

func pick[T any](quick bool, full, small T) T {
	if quick {
		return small
	}
	return full
}
