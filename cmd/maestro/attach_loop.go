package main

import (
	"bufio"
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

// A driver is the part of [client.Client] that an attachment uses.
type driver interface {
	follower
	State() contracts.State
	Send(context.Context, contracts.Command) (contracts.Result, error)
	TakeControl(context.Context) (contracts.Result, error)
	ReleaseControl(context.Context) (contracts.Result, error)
	AskControl(ctx context.Context, reason string) (contracts.Result, error)
	GrantControl(ctx context.Context, connectionID string) (contracts.Result, error)
	DenyControl(ctx context.Context, connectionID, reason string) (contracts.Result, error)
	History(context.Context, contracts.HistoryRequest) (*contracts.HistoryPage, error)
}

// An attachment connects a user and a session: updates go to the screen, lines to
// the server. The goroutine in run owns all fields.
type attachment struct {
	client   driver
	server   serverCalls
	shareURL string                                  // URL that the links of shares open
	redial   func(context.Context) (follower, error) // opens a second connection that begins at the start of the session
	view     *view
	activity *activity
	edit     *console.Line   // the line being typed, in raw mode
	mode     *console.Mode   // the terminal in raw mode; nil in tests
	local    *console.Screen // for messages to this user only
	json     io.Writer       // receives updates as JSON; nil if they are shown
	typed    bool            // a human types the lines
	viewer   bool            // lines that act are refused
	linked   bool            // the credential is the link of a share, so other flags do not allow more

	skipped   uint64 // entries that the client did not ask for
	sending   int    // orders without an outcome; at most maxSending
	read      bool   // there was a line
	failed    bool   // a line or an order was refused
	acted     bool   // a line did more than watch
	ended     bool   // there are no more lines
	lastStop  time.Time
	gone      time.Time    // when the question at the prompt ended; zero if the next line is not meant for it
	intruded  time.Time    // when a question came while a line was being typed
	goneBegun bool         // that question was answered in part
	past      *history     // nil unless it is being shown
	inbox     []inboxEntry // as shown last
	shares    []string     // ids, as shown last
	orders    chan order   // maxSending-buffered; never closed
	outcomes  chan order   // likewise
}

// An order is a request to the server, and later its outcome.
type order struct {
	what string
	do   request
	done func(contracts.Result) // called if the server accepts; may be nil
	undo func()                 // called if the server refuses; may be nil

	result contracts.Result
	err    error
}

// errLeave means that the user wants to leave.
var errLeave = errors.New("leave")

// newAttachment returns an attachment that prints on out. If size is not nil, the
// user types on out, which is a terminal of that size in raw mode.
func newAttachment(c driver, out, errOut io.Writer, flags *attachFlags, size func() (width, height int)) *attachment {
	a := &attachment{
		client: c, activity: newActivity(), viewer: flags.view, linked: flags.share != "", edit: &console.Line{},
		orders: make(chan order, maxSending), outcomes: make(chan order, maxSending),
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

// pending reports whether a question is open in the latest state.
func (a *attachment) pending(id string) bool {
	return slices.ContainsFunc(a.client.State().PendingRequests, func(p contracts.PendingRequest) bool { return p.ID == id })
}

// run follows the session until the user leaves, the server ends the session or
// ctx ends. Its goroutines have ended when it returns, except the one that reads
// in, which cannot be interrupted.
func (a *attachment) run(ctx context.Context, in io.Reader, signals <-chan os.Signal) error {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	defer a.local.Hide()
	updates := make(chan news, maxNews)
	wg.Go(a.restoring(func() { follow(ctx, a.client, updates) })) // ends with ctx or the session
	wg.Go(a.restoring(func() { a.dispatch(ctx) }))                // ends with ctx
	lines := make(chan input)
	go a.restoring(func() { readInput(ctx, in, a.local.Live(), lines) })() // ends with the input, or after the next one once ctx has ended

	for {
		present, past, typed := updates, (chan news)(nil), lines
		if a.past != nil {
			present, past = nil, a.past.pages
		}
		if !a.takesLines() {
			typed = nil
		}
		var quiet <-chan time.Time
		if a.ended {
			quiet = time.After(quietPeriod)
		}
		a.aim()
		if len(present)+len(past) == 0 {
			a.local.Flush()
		}
		var err error
		select {
		case n := <-present:
			err = a.update(n)
		case n, more := <-past:
			a.page(n, more)
		case line, ok := <-typed:
			switch {
			case !ok && a.typed:
				err = errLeave
			case !ok: // a script waits for its runs
				lines, a.ended = nil, true
			case line.err != nil:
				err = line.err
			case a.local.Live():
				err = a.press(ctx, &wg, line.text, signals)
			default:
				a.read = true
				err = a.line(ctx, &wg, line.text)
			}
		case o := <-a.outcomes:
			a.outcome(o)
		case s := <-signals:
			err = a.signal(s)
		case <-quiet:
			err = a.quiet()
		case <-ctx.Done():
			err = errLeave
		}
		if err == nil {
			err = a.local.Err()
		}
		if err == nil && a.failed && !a.typed {
			err = errLeave // the next lines expect that this one was accepted
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

// restoring returns f such that a panic in it restores the terminal.
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

// An input is a line, or on a terminal in raw mode the bytes of some keys. err is
// the reason why there are no more.
type input struct {
	text string
	err  error
}

// readInput sends the input and closes lines at its end. A line of more than
// maxTyped bytes, or a failed read of a line, ends the input with an error.
func readInput(ctx context.Context, in io.Reader, raw bool, lines chan<- input) {
	defer close(lines)
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxTyped)
	if raw {
		scan.Split(func(data []byte, _ bool) (int, []byte, error) {
			if len(data) == 0 {
				return 0, nil, nil
			}
			return len(data), data, nil
		})
	}
	for scan.Scan() {
		select {
		case lines <- input{text: scan.Text()}:
		case <-ctx.Done():
			return
		}
	}
	err := scan.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("a line has more than %d bytes", maxTyped)
	}
	if err != nil && !raw {
		select {
		case lines <- input{err: fmt.Errorf("read input: %w", err)}:
		case <-ctx.Done():
		}
	}
}

// takesLines reports whether the next line may be read. Lines of a human are
// always read. Lines of a script wait until the history has been shown, the line
// before has been answered, and its run has ended or asks a question.
func (a *attachment) takesLines() bool {
	return a.typed || a.view.present && a.sending == 0 && (!a.activity.running() || a.activity.asks())
}

// exitRunFailed is the exit code of a script whose lines were all accepted, if one
// of its runs ended with an error.
const exitRunFailed = 3

// verdict returns the exit code for a script: whether all its lines were accepted,
// and whether its runs succeeded.
func (a *attachment) verdict() error {
	switch {
	case a.typed:
	case a.failed:
		return exit(exitFailure)
	case a.activity.broke():
		return exit(exitRunFailed)
	}
	return nil
}

// news is what Next returned.
type news struct {
	update client.Update
	err    error
}

// follow passes updates on until an error or the end of ctx.
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

// update shows an update of the session.
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
	waiting := a.activity.first()
	if waiting != nil {
		copied := *waiting // the activity changes
		waiting = &copied
	}
	number := a.activity.note(n.update)
	a.miss(waiting, n.update)
	could, present := a.view.mayAnswer(), a.view.present
	if f, ok := n.update.Control.(*contracts.ControlRequest); ok {
		a.view.asked(f, number)
	}
	if !a.announces(n.update) {
		a.view.show(n.update)
	}
	if a.skipped > 0 && !present {
		a.catchUp(n.update)
	}
	if !could && a.view.mayAnswer() {
		for _, q := range a.activity.questions {
			a.view.request(q)
		}
	}
	return nil
}

// miss notes that somebody else ended the question at the prompt.
func (a *attachment) miss(q *question, u client.Update) {
	if q == nil || !a.view.present || u.Replayed || a.activity.holds(q.id) {
		return
	}
	e, ok := u.Event.(*contracts.ServerRequestResolved)
	if q.begun() || a.typed && !(ok && e.ResolvedBy == contracts.ResolvedByRuntime) { // a question that ends with its run needs no care: the user sees the end of the run
		a.gone, a.goneBegun = time.Now(), q.begun()
	}
}

// tooLate reports, once, whether a line may have been meant for a question that
// has ended.
func (a *attachment) tooLate() bool {
	gone := a.gone
	a.gone = time.Time{}
	return !gone.IsZero() && (a.goneBegun || time.Since(gone) < secondStroke)
}

// announces reports whether an update tells all clients that one of them asks for
// control while we have it. We get a control frame as well, and show that one.
func (a *attachment) announces(u client.Update) bool {
	status, ok := u.Event.(*contracts.Status)
	if !ok || u.Replayed || !a.view.driving() {
		return false
	}
	name, ok := strings.CutSuffix(status.Message, " asks for control")
	return ok && a.view.attached(name)
}

// catchUp replaces the entries that the client did not ask for by the state: the
// activity takes it at the beginning, and the user sees it after the history.
func (a *attachment) catchUp(u client.Update) {
	if u.Kind == client.KindConnected {
		st := a.client.State()
		a.activity.restore(&st, false)
		if u.Attached.Resume == "replay" {
			a.view.notice(console.Dim, "earlier entries are not shown: /history shows the session from its beginning")
		}
	}
	if _, caughtUp := u.Event.(*contracts.HelloOK); caughtUp {
		a.view.snapshot(&contracts.Snapshot{State: a.client.State()})
	}
}

// quiet handles a time without news after the last line of a script. The script leaves if
// its runs have ended, or if a question waits for it.
func (a *attachment) quiet() error {
	switch {
	case a.sending > 0 || !a.read:
	case a.activity.first() != nil && a.view.driving():
		a.local.Line(console.Red, "! a question waits for an answer, and there are no more lines")
		a.failed = true
		return errLeave
	case !a.activity.running():
		return errLeave
	}
	return nil
}

// signal handles Ctrl-C, changes and the end of the terminal, and termination.
func (a *attachment) signal(s os.Signal) error {
	if slices.Contains(console.Signals, s) {
		return a.refresh(s)
	}
	a.gone = time.Time{} // the line typed for the question is dropped
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
	case a.view.driving() && a.activity.running():
		a.send(order{what: "interrupt", do: a.command(&contracts.Interrupt{})})
		a.local.Line(console.Yellow, "-- interrupting; Ctrl-C again leaves")
	default:
		a.local.Line(console.Dim, "-- Ctrl-C again leaves")
	}
	return nil
}

// outcome handles the outcome of an order, and shows an error.
func (a *attachment) outcome(o order) {
	a.sending--
	if o.err == nil {
		if o.done != nil {
			o.done(o.result)
		}
		return
	}
	if o.undo != nil {
		o.undo()
	}
	if e, ok := errors.AsType[*client.CloseError](o.err); !ok || e.Code != 1000 { // else the session ended first
		a.failed = true
	}
	a.local.Line(console.Red, "! "+o.what+": "+inWords(o.err))
}
