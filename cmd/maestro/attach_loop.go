package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/console"
)

const (
	maxTyped     = console.MaxLine // bytes in one line
	maxNews      = 64              // updates that wait for the loop
	maxSending   = 16              // actions without an answer
	quietPeriod  = 3 * time.Second // without news, after which a script's work is done
	secondStroke = 2 * time.Second // within which another Ctrl-C leaves
)

// A follower is the part of a client that shows a session.
type follower interface {
	Next(context.Context) (client.Update, error)
	Close(keep bool) error
}

// A driver is the client as an attachment uses it; *client.Client is one.
type driver interface {
	follower
	State() contracts.State
	Send(context.Context, contracts.Command) (contracts.Result, error)
	TakeControl(context.Context) (contracts.Result, error)
	ReleaseControl(context.Context) (contracts.Result, error)
	AskControl(ctx context.Context, reason string) (contracts.Result, error)
	GrantControl(ctx context.Context, connectionID string) (contracts.Result, error)
	DenyControl(ctx context.Context, connectionID, reason string) (contracts.Result, error)
}

// An attachment is a user at a session: updates go to the screen, lines to the
// server. All its fields belong to the goroutine in run.
type attachment struct {
	client driver
	redial func(context.Context) (follower, error) // another look at the session, from its beginning
	view   *view
	inbox  *inbox
	edit   *console.Line   // what is being typed, where lines do not come whole
	mode   *console.Mode   // the terminal that it is typed on; nil in tests
	local  *console.Screen // for what only this user is told
	json   io.Writer       // where updates go as JSON; nil if they are shown
	typed  bool            // lines come from a human
	viewer bool            // lines that act are refused

	skipped  uint64 // entries that were not asked for
	present  bool   // what was there before us has been shown
	sending  int    // actions without an answer; at most maxSending
	accepted bool   // something that was sent was
	failed   bool   // a line, or something that was sent, was refused
	acted    bool   // a line did more than watch
	ended    bool   // there are no more lines
	lastStop time.Time
	gone     *withdrawal  // nil unless the question at the prompt has gone
	intruded time.Time    // when a question came while a line was being typed
	past     *history     // nil unless it is being shown
	orders   chan order   // maxSending-buffered; never closed
	outcomes chan outcome // never closed
}

// An order is an action on its way to the server.
type order struct {
	what string
	do   request
	done func(contracts.Result) // if it is accepted; may be nil
	undo func()                 // if it is refused; may be nil
}

// An outcome is what became of an action.
type outcome struct {
	order
	result contracts.Result
	err    error
}

// errLeave says that the user wants to leave.
var errLeave = errors.New("leave")

// newAttachment returns an attachment that prints on out. If size is not nil, out
// is a terminal of that size in raw mode, on which the user types.
func newAttachment(c driver, out, errOut io.Writer, flags *attachFlags, size func() (width, height int)) *attachment {
	a := &attachment{
		client: c, inbox: newInbox(), viewer: flags.view, edit: &console.Line{},
		orders: make(chan order, maxSending), outcomes: make(chan outcome),
	}
	coloured := func(out io.Writer) bool {
		return console.IsTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	a.local = console.NewScreen(out, coloured(out), nil, nil)
	switch {
	case flags.json:
		a.json, a.local = out, console.NewScreen(errOut, coloured(errOut), nil, nil)
		a.view = newView(console.NewScreen(io.Discard, false, nil, nil))
		return a
	case size != nil:
		a.local = console.NewScreen(out, coloured(out), a.edit, size)
	}
	a.view = newView(a.local)
	a.view.pending = a.pending
	return a
}

// pending reports whether a question waits, as of the latest update.
func (a *attachment) pending(id string) bool {
	return slices.ContainsFunc(a.client.State().PendingRequests, func(p contracts.PendingRequest) bool { return p.ID == id })
}

// run follows the session until the user leaves, the server ends it or ctx
// does. The goroutines it starts have ended when it returns, except the one
// that reads in, which cannot be interrupted and ends with it.
func (a *attachment) run(ctx context.Context, in io.Reader, signals <-chan os.Signal) error {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	defer a.local.Hide()
	updates := make(chan news, maxNews)
	wg.Go(a.restoring(func() { follow(ctx, a.client, updates) })) // ends with ctx or the session
	wg.Go(a.restoring(func() { a.dispatch(ctx) }))                // ends with ctx
	var lines chan typedLine
	var keys chan []byte
	if a.local.Live() {
		keys = make(chan []byte)
		go a.restoring(func() { readKeys(ctx, in, keys) })()
	} else {
		lines = make(chan typedLine)
		go readLines(ctx, in, lines)
	}

	quiet := time.NewTimer(quietPeriod)
	defer quiet.Stop()
	for {
		present, past, typed := updates, (chan news)(nil), lines
		if a.past != nil {
			present, past = nil, a.past.pages
		}
		if !a.takesLines() {
			typed = nil
		}
		a.aim()
		if len(present)+len(past) == 0 {
			a.local.Flush()
		}
		var err error
		select {
		case n := <-present:
			err = a.update(n)
			quiet.Reset(quietPeriod)
		case n, more := <-past:
			a.page(n, more)
			quiet.Reset(quietPeriod)
		case line, ok := <-typed:
			switch {
			case !ok:
				lines = nil
				err = a.inputEnded()
			case line.err != nil:
				err = line.err
			default:
				err = a.line(ctx, &wg, line.text)
			}
			quiet.Reset(quietPeriod)
		case chunk, ok := <-keys:
			if err = errLeave; ok {
				err = a.press(ctx, &wg, chunk, signals)
			}
		case o := <-a.outcomes:
			a.outcome(o)
			quiet.Reset(quietPeriod)
		case s := <-signals:
			err = a.signal(s)
		case <-quiet.C:
			err = a.quiet()
		case <-ctx.Done():
			err = errLeave
		}
		if err == nil {
			err = a.local.Err()
		}
		if err == nil && a.failed && !a.typed {
			err = errLeave // the lines that follow were written for a run that goes otherwise
		}
		if errors.Is(err, errLeave) {
			a.local.EndLine()
			return a.verdict()
		}
		if err != nil {
			return err
		}
	}
}

// restoring returns f such that a panic in it leaves the terminal as it was found.
func (a *attachment) restoring(f func()) func() {
	return func() {
		done := false
		defer func() {
			if !done && a.mode != nil {
				a.mode.Restore()
			}
		}()
		f()
		done = true
	}
}

// takesLines reports whether the next line may be read. A human types when it
// suits, and sees why something is refused; the lines of a script wait until the
// past has been told, the line before has been answered, and what it started is
// over or asks something.
func (a *attachment) takesLines() bool {
	return a.typed || a.present && a.sending == 0 && (!a.inbox.running() || a.inbox.asks())
}

// exitRunFailed is how a script ends of which every line was accepted, and a run
// that it began ended with an error.
const exitRunFailed = 3

// verdict is how an attachment ends that was left: a script wants to know
// whether all its lines were accepted, and what they began went well.
func (a *attachment) verdict() error {
	switch {
	case a.typed:
	case a.failed:
		return exit(exitFailure)
	case a.inbox.broke():
		return exit(exitRunFailed)
	}
	return nil
}

// news is what Next returned.
type news struct {
	update client.Update
	err    error
}

// follow hands updates on until one is an error or ctx ends.
func follow(ctx context.Context, c follower, updates chan<- news) {
	for {
		u, err := c.Next(ctx)
		select {
		case updates <- news{u, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// update shows what the session tells.
func (a *attachment) update(n news) error {
	if n.err != nil {
		if e, ok := errors.AsType[*client.CloseError](n.err); ok && e.Code == 1000 {
			a.local.Line(console.Bold, "-- the session has ended")
			return errLeave
		}
		return n.err
	}
	if a.json != nil {
		if err := writeJSON(a.json, n.update); err != nil {
			return fmt.Errorf("write update: %w", err)
		}
	}
	waiting := a.inbox.first()
	if waiting != nil {
		copied := *waiting // the inbox changes
		waiting = &copied
	}
	number := a.inbox.note(n.update)
	a.miss(waiting, n.update)
	could := a.view.mayAnswer()
	if f, ok := n.update.Control.(*contracts.ControlRequest); ok {
		a.view.asked(f, number)
	}
	if !a.announces(n.update) {
		a.view.show(n.update)
	}
	if a.skipped > 0 && !a.present {
		a.catchUp(n.update)
	}
	if _, caughtUp := n.update.Event.(*contracts.HelloOK); caughtUp {
		a.present = true
	}
	if !could && a.view.mayAnswer() {
		for _, q := range a.inbox.questions {
			a.view.request(q)
		}
	}
	return nil
}

// A withdrawal is the end of the question at the prompt that did not come from
// here: the next line may have been meant for it.
type withdrawal struct {
	begun bool // it was answered in part
	at    time.Time
}

// miss notes that the question at the prompt has gone.
func (a *attachment) miss(q *question, u client.Update) {
	if q == nil || !a.present || u.Replayed || a.inbox.holds(q.id) {
		return
	}
	e, ok := u.Event.(*contracts.ServerRequestResolved)
	if q.begun() || a.typed && !(ok && e.ResolvedBy == contracts.ResolvedByRuntime) { // that ends with its run, which is seen
		a.gone = &withdrawal{q.begun(), time.Now()}
	}
}

// tooLate reports, once, whether a line may have been meant for a question that
// has gone meanwhile.
func (a *attachment) tooLate() bool {
	gone := a.gone
	a.gone = nil
	return gone != nil && (gone.begun || time.Since(gone.at) < secondStroke)
}

// announces reports whether an update is what everybody is told of somebody who
// asks for control, while we are the one who is asked. Then we are told directly,
// and with how to answer.
func (a *attachment) announces(u client.Update) bool {
	status, ok := u.Event.(*contracts.Status)
	if !ok || u.Replayed || !a.view.driving() {
		return false
	}
	name, ok := strings.CutSuffix(status.Message, " asks for control")
	return ok && a.view.attached(name)
}

// catchUp makes up for the entries that were not asked for: what of them still
// counts is known at the beginning, and shown after those that were.
func (a *attachment) catchUp(u client.Update) {
	if u.Kind == client.KindConnected {
		st := a.client.State()
		a.inbox.restore(&st, false)
		if u.Attached.Resume == "replay" {
			a.view.notice(console.Dim, "%d earlier entries are not shown: /history shows the session from its beginning", a.skipped)
		}
	}
	if _, caughtUp := u.Event.(*contracts.HelloOK); caughtUp {
		a.view.snapshot(&contracts.Snapshot{State: a.client.State()})
	}
}

// inputEnded handles the end of the lines: a human leaves, a script waits for
// what it started.
func (a *attachment) inputEnded() error {
	if a.typed {
		return errLeave
	}
	a.ended = true
	return nil
}

// quiet handles a time without news: a script that has done its work leaves, and
// so does one that is asked something and has no more lines.
func (a *attachment) quiet() error {
	switch {
	case !a.ended || a.sending > 0 || !a.accepted:
	case a.inbox.first() != nil && a.view.driving():
		a.local.Line(console.Red, "! a question waits for an answer, and there are no more lines")
		a.failed = true
		return errLeave
	case !a.inbox.running():
		return errLeave
	}
	return nil
}

// signal handles Ctrl-C, the end of the terminal and termination.
func (a *attachment) signal(s os.Signal) error {
	if slices.Contains(console.Signals, s) {
		return a.refresh(s)
	}
	a.gone = nil // what was typed for it is dropped
	if s == os.Interrupt && a.past != nil {
		a.past.stop()
		return nil
	}
	now := time.Now()
	again := now.Sub(a.lastStop) < secondStroke
	a.lastStop = now
	switch {
	case s != os.Interrupt || again:
		return errLeave
	case a.view.driving() && a.inbox.running():
		a.send(order{what: "interrupt", do: a.command(&contracts.Interrupt{})})
		a.local.Line(console.Yellow, "-- interrupting; Ctrl-C again leaves")
	default:
		a.local.Line(console.Dim, "-- Ctrl-C again leaves")
	}
	return nil
}

// outcome tells what became of an action, if it failed.
func (a *attachment) outcome(o outcome) {
	a.sending--
	if o.err == nil {
		a.accepted = true
		if o.done != nil {
			o.done(o.result)
		}
	} else {
		if o.undo != nil {
			o.undo()
		}
		if e, ok := errors.AsType[*client.CloseError](o.err); !ok || e.Code != 1000 { // else the session ended first
			a.failed = true
		}
		a.local.Line(console.Red, "! "+o.what+": "+inWords(o.err))
	}
}
