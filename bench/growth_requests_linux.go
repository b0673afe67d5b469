package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// openQuestions is how many questions wait where large ones do.
const openQuestions = 64

// askAll makes the conformance agent ask questions whose arguments are size bytes
// long, and leaves them open.
func (d driver) askAll(size int) {
	for i := range openQuestions {
		ask := fmt.Sprintf(`__maestro_conformance_approval__:{"request_id":"q%d","tool":"write","args":{"text":%q}}`, i, strings.Repeat("q", size))
		check(d.command(&contracts.Prompt{Content: ask}))
		check(d.await(`"type":"server_request"`, runEnd))
	}
}

// questionGrowth is what publishing an event costs while large questions wait.
var questionGrowth = growth{
	name: "questions",
	figures: func(p plan) []figure {
		beside := fmt.Sprintf("an event while %d questions of %d KiB wait: processor time", openQuestions, p.growth.questions.size>>10)
		return []figure{
			{what: "an event: processor time", before: "2.3", unit: "us"},
			{what: beside, before: "37", unit: "us"},
			{what: beside, before: "16", unit: "x", limit: 1.5, versus: "the same without"},
			{what: beside + ", the dearest of three bursts", before: "37", unit: "us"},
		}
	},
	take: func(t *trial, _, scratch string) []float64 {
		p := t.plan.growth.questions
		s, d := t.serveDriven(scratch, "conformance", unbounded...)
		// A checkpoint, which writes the whole state, is in one burst of three at most.
		cost := func() (median, most float64) {
			us := make([]float64, 3)
			for i := range us {
				us[i] = ms(cpuDuring(s.pid, func() { d.bursts(p.events) })) * 1000 / float64(p.events)
			}
			slices.Sort(us)
			return us[1], us[2]
		}
		cost() // to warm up
		without, _ := cost()
		d.askAll(p.size)
		with, most := cost()
		return []float64{without, with, ratio(with, without), most}
	},
}

// listGrowth is what listing and creating sessions costs when many are stored.
var listGrowth = growth{
	name: "list",
	figures: func(p plan) []figure {
		list := fmt.Sprintf("list %d stored sessions: processor time", p.growth.list.sessions)
		return []figure{
			{what: list, before: "159", unit: "ms", limit: 10, versus: "(abs)"},
			{what: list + " of the first after a start", before: "159", unit: "ms"},
			{what: fmt.Sprintf("create a session beside %d stored: processor time", p.growth.list.sessions), before: "159", unit: "ms", limit: 10, versus: "(abs)"},
		}
	},
	prepare: func(t *trial, dir string) {
		// Sessions are closed soon, so that few are open at once.
		s := t.serve(dir, "conformance", append(t.manySessions(), "--lease-ttl", "1s", "--idle-ttl", "1s")...)
		s.createSessions(t.plan.growth.list.sessions - 1) // the server has made one
	},
	take: func(t *trial, dir, _ string) []float64 {
		s := t.serve(dir, "conformance", t.manySessions()...)
		times := t.plan.growth.list.times
		each := func(times int, do func()) float64 { return ms(cpuDuring(s.pid, do)) / float64(times) }
		list := func(times int) float64 {
			return each(times, func() {
				for range times {
					s.call(http.MethodGet, "sessions", "", nil)
				}
			})
		}
		first := list(1)
		for cpuDuring(s.pid, func() { check(pause(t.ctx, settle)) }) > settle/20 { // it still reads the summaries of all sessions
		}
		return []float64{list(times), first, each(times, func() { s.createSessions(times) })}
	},
}

// manySessions are flags with which a server stores the sessions of listGrowth.
func (t *trial) manySessions() []string {
	p := t.plan.growth.list
	most := strconv.Itoa(p.sessions + p.times)
	return append([]string{"--max-sessions", most, "--max-kept-sessions", most}, unbounded...)
}

// createSessions makes sessions, each with a connection.
func (s *server) createSessions(count int) {
	for range count {
		s.connectTo("", contracts.RoleController)
	}
}

// postGrowth is what a message over HTTP costs when many clients are connected.
var postGrowth = growth{
	name: "post",
	figures: func(p plan) []figure {
		few := "a message over POST with 1 connection: processor time"
		many := fmt.Sprintf("a message over POST with %d connections: processor time", p.growth.post.connections)
		return []figure{
			{what: few, before: "12 in the hub alone", unit: "us"},
			{what: many, before: "222 in the hub alone", unit: "us"},
			{what: many, before: "18 in the hub alone", unit: "x", limit: 6, versus: "the same with 1"},
		}
	},
	take: func(t *trial, _, scratch string) []float64 {
		few := within(t, func(t *trial) float64 { return t.postBeside(filepath.Join(scratch, "few"), 1) })
		many := t.postBeside(filepath.Join(scratch, "many"), t.plan.growth.post.connections)
		return []float64{few, many, ratio(many, few)}
	},
}

// postBeside is the processor time of a message in microseconds.
func (t *trial) postBeside(scratch string, connections int) (us float64) {
	s := t.serve(scratch, "conformance", unbounded...)
	by := s.connectTo(s.session, contracts.RoleController)
	for range connections - 1 {
		s.connectTo(s.session, contracts.RoleViewer)
	}
	post := func(times int) {
		for range times {
			s.post(by, &contracts.Interrupt{})
		}
	}
	times := t.plan.growth.post.times
	post(times / 10) // to warm up
	check(pause(t.ctx, settle))
	return ms(cpuDuring(s.pid, func() { post(times) })) * 1000 / float64(times)
}
