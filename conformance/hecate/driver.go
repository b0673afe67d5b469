package hecate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/proc"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// The kinds of prompts.
const (
	say    = "say"
	long   = "long"
	ask    = "ask"
	bursts = "burst"
	secret = "secret"
)

// promptOf returns the prompt of a kind.
func promptOf(kind string, c *conformance.Config) string {
	p := c.Prompts
	return map[string]string{say: p.Say, long: p.Long, ask: p.Ask, bursts: p.Burst, secret: strings.ReplaceAll(p.Secret, "{secret}", c.Secret)}[kind]
}

// A driver starts runs, with a command or over the Maestro protocol. It ends with close.
type driver struct {
	ctx    context.Context // of all scenarios
	config *conformance.Config
	wire   *wire

	mu      sync.Mutex // held while a run is started, until it is known
	clients []*client.Client
	groups  []*proc.Group
	lost    bool // a run was started and did not appear
	wg      sync.WaitGroup
}

// newDriver returns nil if there is no command and the server does not speak the Maestro protocol.
func newDriver(ctx context.Context, c *conformance.Config, w *wire) *driver {
	if c.Driver == "" {
		a, err := w.do(ctx, http.MethodGet, "/api/headless/sessions", acceptList, nil)
		if err != nil || a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
			return nil
		}
	}
	return &driver{ctx: ctx, config: c, wire: w}
}

// close ends the commands that were started, and the sessions that were made.
func (d *driver) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.groups {
		g.Stop(0, nil)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), d.config.Patience)
	defer cancel()
	for _, c := range d.clients {
		_, _ = c.Send(ctx, &contracts.Shutdown{}) // the session may be over
		_ = c.Close(false)                        // and the connection too
	}
	d.wg.Wait()
}

// drive starts a run with the prompt of a kind and returns it as soon as the cross-run stream
// shows it. One run is started at a time, so that the new one is known.
func (s *play) drive(kind string) ref {
	d := s.suite.driver
	if d == nil {
		s.skip("needs a new run, and there is no driver that starts one")
	}
	prompt := promptOf(kind, s.config)
	if prompt == "" {
		s.skip("needs a prompt of the kind %s", kind)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost {
		s.skip("needs a new run, and one that was started before did not appear on the cross-run stream")
	}
	s.mustSettle()
	before, _ := s.suite.feed.list()
	shown := prompt
	if kind == secret {
		shown = "(not shown)"
	}
	s.note(">", "("+kind+") "+shown)
	start, newTask := d.prompt, true // each of its sessions is a task
	if s.config.Driver != "" {
		start, newTask = d.command, false
	}
	ctx, cancel := context.WithTimeout(s.ctx, 4*s.config.Patience)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err := start(s, kind, prompt, fail); err != nil {
		s.skip("the driver starts no run: %v", err)
	}
	r, ok := s.suite.feed.newRun(ctx, before, newTask)
	if cause := context.Cause(ctx); !ok && errors.Is(cause, errDriver) {
		s.skip("%v", cause)
	}
	if !ok {
		d.lost = true
		_, err := s.suite.feed.list()
		s.failIf(err != nil, "E17", "GET %s: %v", feedStream, err)
		s.fail("E17", "GET %s: expected the events of a run that was started, got none", feedStream)
	}
	s.note("<", "the new run is "+r.path())
	return r
}

// errDriver is why a run did not begin.
var errDriver = errors.New("the driver starts no run")

// command starts the driver's command. If the command fails, it calls fail.
func (d *driver) command(_ *play, kind, prompt string, fail context.CancelCauseFunc) error {
	words, err := proc.SplitWords(d.config.Driver)
	if err != nil {
		return err
	}
	cmd := exec.Command(words[0], append(words[1:], prompt)...)
	cmd.Env = append(os.Environ(), "HECATE_URL="+strings.TrimRight(d.config.Target, "/"), "HECATE_PROMPT="+kind)
	said := &conformance.Tail{}
	cmd.Stdout, cmd.Stderr = said, said
	g, err := proc.Start(cmd)
	if err != nil {
		return err
	}
	d.groups = append(d.groups, g)
	d.wg.Go(func() { // ends with the command
		<-g.Exited()
		if code, signal := g.Status(); code != 0 || signal != "" {
			fail(fmt.Errorf("%w: exit status %d%s: %s", errDriver, code, signal, short([]byte(strings.TrimSpace(said.String())))))
		}
	})
	return nil
}

// prompt sends a prompt over the Maestro protocol, in a session of its own.
func (d *driver) prompt(s *play, kind, prompt string, _ context.CancelCauseFunc) error {
	hello := contracts.Hello{Role: contracts.RoleController,
		Capabilities: &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestApproval}}}
	c, err := client.Dial(s.ctx, strings.TrimRight(d.config.Target, "/"), client.WithHello(hello), client.WithToken(d.config.Token),
		client.WithSession("conf-"+uuid.NewString(), true))
	if err != nil {
		return err
	}
	d.clients = append(d.clients, c)
	d.wg.Go(func() { // a client must be read; ends with it
		for _, err := range c.Updates(context.WithoutCancel(s.ctx)) {
			if err != nil { // the last element
				return
			}
		}
	})
	mode := contracts.ApprovalAuto
	if kind == ask {
		mode = contracts.ApprovalPrompt
	}
	if _, err := c.Send(s.ctx, &contracts.Init{ApprovalMode: mode}); err != nil {
		return err
	}
	_, err = c.Prompt(s.ctx, prompt)
	return err
}

// sample returns a run that has ended: a new one, or the newest that exists.
func (s *play) sample() *run {
	return s.suite.samples.get(s, func() *run {
		if s.suite.driver != nil && s.config.Prompts.Say != "" {
			s.mustSettle()
			since := s.suite.feed.position()
			f := s.follow(s.drive(say))
			f.end("E20")
			f.since = since
			return &f.run
		}
		runs, err := s.runs()
		for i := len(runs) - 1; i >= 0; i-- {
			if runs[i].ended {
				return &run{ref: runs[i].ref, events: s.whole("E7", runs[i].ref, -1)}
			}
		}
		s.skip("there is no driver that starts a run, and %s", cmp.Or(map[bool]string{true: "the server shows no run that has ended"}[err == nil], fmt.Sprint(err)))
		return nil
	})
}

// settle waits until the runs that exist are known.
func (s *play) settle() error {
	ctx, cancel := context.WithTimeout(s.ctx, 4*s.config.Patience)
	defer cancel()
	return s.suite.feed.settle(ctx)
}

// mustSettle fails if the runs that exist do not become known.
func (s *play) mustSettle() {
	err := s.settle()
	s.failIf(err != nil, "E17", "the runs that exist are not known: %v", err)
}

// runs returns the runs that the server has shown, oldest first, and why there may be more.
func (s *play) runs() ([]known, error) {
	unsettled := s.settle()
	runs, err := s.suite.feed.list()
	return runs, cmp.Or(unsettled, err)
}

// maxRunsJudged bounds the runs whose logs are read. They have at most maxEvents together.
const maxRunsJudged = 200

// newest returns the newest runs whose logs may be read.
func newest(runs []known) []known {
	events := 0
	for i := len(runs) - 1; i >= 0; i-- {
		if events += runs[i].events; events > maxEvents || len(runs)-i > maxRunsJudged {
			return runs[i+1:]
		}
	}
	return runs
}

// history returns the logs to judge: of the file, or of all runs of the server.
func (s *play) history() *history {
	if s.suite.file != nil {
		return s.suite.file
	}
	return s.suite.histories.get(s, func() *history {
		if s.suite.driver != nil && s.config.Prompts.Say != "" {
			s.sample()
		}
		runs, err := s.runs()
		if len(runs) == 0 && err != nil {
			s.skip("the runs of the server are not known: %v", err)
		}
		h := &history{}
		for _, k := range newest(runs) {
			h.runs = append(h.runs, &run{ref: k.ref, events: s.whole("E7", k.ref, -1)})
		}
		if err := h.save(s.config.Save); err != nil {
			s.skip("the runs cannot be saved: %v", err)
		}
		return h
	})
}

// A follower reads the list of a run again and again.
type follower struct {
	s *play
	run
	pos int // of the first event that was not looked at
}

func (s *play) follow(r ref) *follower { return &follower{s: s, run: run{ref: r}} }

// pollPause is the time between two looks at a list.
const pollPause = 50 * time.Millisecond

// await returns the next event that is accepted. It returns nil if the run ends before, and
// fails if neither happens until the scenario is over.
func (f *follower) await(rule, what string, ok func(*event) bool) *event {
	limit, _ := f.s.ctx.Deadline()
	for {
		for f.pos < len(f.events) {
			e := f.events[f.pos]
			if f.pos++; ok(e) {
				return e
			}
			if e.ends() {
				return nil
			}
		}
		if time.Until(limit) < 2*pollPause {
			f.s.fail(rule, "expected %s in %s, got %d events, the last of them %v", what, f.ref.run, len(f.events), f.last())
		}
		_ = sleep.For(f.s.ctx, pollPause) // the deadline comes first
		f.update(rule)
	}
}

// update reads what is new.
func (f *follower) update(rule string) {
	after := int64(-1)
	if last := f.last(); last != nil {
		after = last.sequence
	}
	f.s.silent = true
	news := f.s.whole(rule, f.ref, after)
	f.s.silent = false
	for _, e := range news {
		f.s.note("<", string(e.raw))
	}
	f.events = append(f.events, news...)
}

func (f *follower) last() *event {
	if len(f.events) == 0 {
		return nil
	}
	return f.events[len(f.events)-1]
}

// end waits for the end of the run.
func (f *follower) end(rule string) *event { return f.await(rule, "the end of the run", (*event).ends) }
