package hecate

import (
	"bytes"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// Of a run that writes 10 MB byte by byte.
const (
	mostChunks = 2000             // chunks of output that it may have (E25)
	burstLimit = 4 * time.Minute  // for all of it
	stallLimit = 30 * time.Second // for reading on after the end, unless the user is more patient
)

// output judges much output and secrets in it: E25 and E28.
func (u *suite) output() []conformance.Scenario {
	return []conformance.Scenario{
		u.burstScenario("output/coalesced", "E25", "10 MB, written byte by byte, make fewer than 2000 chunks", func(s *play, b *burst) {
			chunks := b.of(kind("tool.shell.output_chunk"))
			if len(chunks) == 0 {
				s.skip("the run has no chunks of output; name a prompt that writes 10 MB with a shell tool")
			}
			s.failIf(len(chunks) >= mostChunks, "E25", "expected fewer than %d chunks, got %d", mostChunks, len(chunks))
		}),
		needs(u.scenario("secret/hidden", "E28", "A secret is in no event, list, stream or approval, and the event names its place", func(s *play) {
			hidden := s.config.Secret
			f := s.follow(s.drive(secret))
			f.end("E28")
			named := false
			for _, e := range f.events {
				s.failIf(strings.Contains(string(e.raw), hidden), "E28", "%s has the secret in it", e)
				named = named || e.data["redacted_keys"] != nil || e.data["redacted_paths"] != nil
			}
			for _, path := range []string{f.url() + "?limit=500", feedList + "?limit=500&task_id=" + f.task, f.approvals()} {
				a := s.call("E28", "GET", path, nil)
				s.failIf(bytes.Contains(a.body, []byte(hidden)), "E28", "%s: the answer has the secret in it", a.what)
			}
			_, events := s.wholeStream("E28", &f.run, "", "")
			for _, e := range events {
				s.failIf(strings.Contains(string(e.raw), hidden), "E28", "the stream: %s has the secret in it", e)
			}
			s.failIf(!named, "E28", "expected redacted_keys or redacted_paths in an event of %s, got none", f.path())
		}), hasSecret, noSecret),
	}
}

// A burst is a run that wrote much, and what a client saw of it that did not read meanwhile.
type burst struct {
	run
	stalled []*event
}

// burstScenario returns a scenario about the burst, which is made once.
func (u *suite) burstScenario(name, rules, title string, judge func(*play, *burst)) conformance.Scenario {
	return slow(u.scenario(name, rules, title, func(s *play) { judge(s, u.bursts.get(s, s.makeBurst)) }), burstLimit)
}

// makeBurst makes the run, with a stream that is not read until the run has ended.
func (s *play) makeBurst() *burst {
	f := s.follow(s.drive(bursts))
	st := s.stream("E44", f.url(), "")
	defer func() { st.close() }()
	f.end("E44")
	b, cursor := &burst{run: f.run}, ""
	for deadline := time.Now().Add(max(stallLimit, 4*s.config.Patience)); time.Now().Before(deadline) && len(b.stalled) <= len(b.events); {
		frames, events := s.readUntil(st, (*event).ends)
		b.stalled = append(b.stalled, events...)
		if len(events) > 0 && events[len(events)-1].ends() {
			break
		}
		if len(frames) > 0 {
			cursor = frames[len(frames)-1].id
		}
		st.close() // the server gave the client up; it comes back
		_ = sleep.For(s.ctx, pollPause)
		st = s.stream("E44", f.url(), cursor)
	}
	return b
}
