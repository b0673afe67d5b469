package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/dialect"
	"github.com/seed-028515a8/maestro/internal/line"
	"github.com/seed-028515a8/maestro/internal/proc"
)

const (
	maxBad    = 100       // lines in a row that are no messages; the program is killed after more
	maxStatus = 8 << 10   // bytes of a text of the program in a status or an error
	maxArgs   = 128 << 10 // bytes of a call's arguments that clients are shown
)

// A Process is one process of the program. Its speaker calls the exported methods, and
// only while one of the speaker's own methods runs.
type Process struct {
	a      *Agent
	proc   *proc.Process
	system string        // the system prompt that it was started with
	ready  chan struct{} // closed by Ready
	over   chan struct{} // closed when the process and its questions have ended
	quit   bool          // it ended by itself before it was ready; set by attempt

	leaving atomic.Bool // it is being dismissed

	life context.Context // bounds publishing and asking; ends soon after the process

	// Set by Ready.
	model, provider string

	// mu is held while the speaker works and while events of a run are published, so
	// that the run does not end meanwhile.
	mu      sync.Mutex
	speaker Speaker
	greeted bool      // Ready was called
	refusal error     // the error given to Refuse
	session string    // id of the conversation; "" if it is unknown
	run     *Run      // nil between runs
	heard   time.Time // when the last line came
	bad     int       // lines in a row that are no messages
	garbled bool      // such a line was reported
}

// A Run is one prompt that the program works on.
type Run struct {
	*turn.Turn
	ended    chan error // 1-buffered; holds the result once the program is done
	over     bool       // the result is known, or the process was given up; Process.mu guards it
	stopping atomic.Bool

	ctx    context.Context // bounds its questions
	stop   context.CancelFunc
	asking sync.WaitGroup
}

// Finish ends the run with the error for clients; nil is success. Later calls do nothing.
func (r *Run) Finish(err error) {
	if !r.over {
		r.over = true
		r.ended <- err
	}
}

// newProcess returns a process that has not been started. If session is not empty, it
// continues that conversation.
func newProcess(a *Agent, session string) *Process {
	argv := a.opts.Argv[1:]
	if session != "" {
		argv = append(argv[:len(argv):len(argv)], a.dialect.Resume(session)...)
	}
	cmd := exec.Command(a.opts.Argv[0], argv...)
	cmd.Dir, cmd.Env = a.opts.Dir, proc.Environ(os.Environ(), a.opts.Hosted, a.opts.EnvPass)
	p := &Process{a: a, ready: make(chan struct{}), over: make(chan struct{}), session: session}
	a.mu.Lock()
	p.system = a.system
	a.mu.Unlock()
	p.speaker = a.dialect.Speak(p, p.system)
	p.proc = proc.NewProcess(cmd, proc.ProcessOptions{Name: "agent process", Log: mask.Log(a.opts.Log, mask.Text)})
	return p
}

// start starts the process and greets it.
func (p *Process) start() error {
	life, stop := context.WithCancel(context.WithoutCancel(p.a.life))
	p.life = life
	if err := p.proc.Start(p.listen); err != nil {
		stop()
		close(p.over)
		return err
	}
	go func() { // ends with the process
		<-p.proc.Life().Done()
		late := time.AfterFunc(proc.DrainTime, stop) // bounds publishing the last events
		<-p.proc.Done()
		late.Stop()
		stop()
		p.reportExit()
		close(p.over)
	}()
	for _, message := range p.speaker.Greeting() {
		p.Send(message)
	}
	return nil
}

// reportExit logs the end of the process, and publishes it unless its start or its run
// reports it.
func (p *Process) reportExit() {
	p.mu.Lock()
	told := !p.greeted || p.run != nil
	p.mu.Unlock()
	log := p.a.opts.Log
	if p.a.life.Err() != nil || p.leaving.Load() {
		log.Debug("agent process ended", "error", p.proc.Failure())
		return
	}
	log.Warn("agent process ended", "error", p.proc.Failure(), "stderr", mask.Text(p.proc.LastWords()))
	if !told {
		p.a.publish(&contracts.ErrorEvent{
			Message: p.proc.Account().Error() + ": it is started again with the next prompt", ErrorType: contracts.ErrorTransient,
		})
	}
}

// refusesSession reports whether the process ended because it could not continue its
// conversation. If another process has the conversation open, it can be continued later.
func (p *Process) refusesSession() bool {
	return p.quit && !strings.Contains(p.proc.LastWords(), "session lock")
}

// listen reads the lines of the program to their end.
func (p *Process) listen(stdout io.Reader) {
	lines := line.NewReader(stdout, p.a.dialect.MaxLine)
	for {
		text, err := lines.Next()
		switch {
		case errors.Is(err, line.ErrLong):
			p.Kill(err) // the run may wait for what the line said
			return
		case err != nil:
			return
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			p.hear(text)
		}
	}
}

func (p *Process) hear(text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
	err := p.speaker.Hear(text)
	p.heard = time.Now() // again: Hear may have waited for a client that does not read
	if err == nil {
		p.bad = 0
		return
	}
	p.a.opts.Log.Debug("agent process wrote a line that is no message", "error", err, "line", mask.Text(abridge.Bytes(string(text), 200)))
	if p.bad++; p.bad > maxBad {
		p.Kill(fmt.Errorf("%d lines in a row are no messages of %s", p.bad, p.a.dialect.Name))
		return
	}
	if p.garbled {
		return
	}
	p.garbled = true
	message := fmt.Sprintf("agent process wrote a line that is no message of %s: %v", p.a.dialect.Name, err)
	if p.Run() == nil { // the hub may not be ready
		p.a.notes.Add(message)
		return
	}
	p.Publish(&contracts.ErrorEvent{Message: message, ErrorType: contracts.ErrorProtocol})
}

// watch lets the speaker see how long the program has been silent.
func (p *Process) watch() {
	if !p.mu.TryLock() { // it is being heard
		return
	}
	defer p.mu.Unlock()
	if p.Run() != nil {
		p.speaker.Watch(time.Since(p.heard))
	}
}

// begin opens a run and sends the program its prompt. cancel is the line that cancels the
// run. If the prompt cannot be sent, there is no run. No other run may be open.
func (p *Process) begin(text string) (r *Run, cancel []byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	send, stop := p.speaker.Prompt(text)
	prompt := dialect.Encode(send)
	if limit := p.a.dialect.MaxInput; len(prompt) > limit {
		return nil, nil, &contracts.Error{
			Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorTool,
			Message: fmt.Sprintf("The prompt was not sent: a line of %s has at most %d bytes, and this one has %d", p.a.dialect.Name, limit, len(prompt)),
		}
	}
	if err := p.proc.Send(append(prompt, '\n')); err != nil {
		return nil, nil, turn.Failed(err)
	}
	r = &Run{Turn: turn.New(p.a.host, p.model, p.provider), ended: make(chan error, 1)}
	r.ctx, r.stop = context.WithCancel(p.life)
	p.run, p.heard = r, time.Now()
	return r, append(dialect.Encode(stop), '\n'), nil
}

// finish closes a run. After it returns, no event of the run is published.
func (p *Process) finish(r *Run) {
	p.mu.Lock()
	r.over, p.run = true, nil
	p.mu.Unlock()
	r.stop()
	r.asking.Wait()
	p.a.remember(p)
}

// outcome returns the result of a run whose process has ended.
func (p *Process) outcome(r *Run) error {
	select {
	case err := <-r.ended: // just before the process ended
		return err
	default:
		return turn.Failed(p.proc.Account())
	}
}

// farewell sends the last message.
func (p *Process) farewell() {
	p.leaving.Store(true)
	if message := p.speaker.Farewell(); message != nil {
		p.Send(message)
	}
}

// Ready says that the program accepts prompts. Later calls do nothing.
func (p *Process) Ready(model, provider string) {
	if !p.greeted {
		p.greeted, p.model, p.provider = true, model, provider
		close(p.ready)
	}
}

// Session sets the id of the conversation. An empty id, and one that cannot be an
// argument of the program, are ignored.
func (p *Process) Session(id string) {
	if id != "" && len(id) <= maxSession && !strings.HasPrefix(id, "-") && !strings.ContainsRune(id, 0) {
		p.session = id
	}
}

// Refuse ends a process that is not ready; err is the error of the start.
func (p *Process) Refuse(err error) {
	p.refusal = err
	p.Kill(err)
}

// Kill ends the process; err is what it did.
func (p *Process) Kill(err error) { p.proc.Kill(fmt.Errorf("agent process killed: %w", err)) }

// Run returns the run that the program works on, or nil.
func (p *Process) Run() *Run {
	if p.run == nil || p.run.over {
		return nil
	}
	return p.run
}

// Send sends the program a message.
func (p *Process) Send(message any) {
	if err := p.proc.Send(append(dialect.Encode(message), '\n')); err != nil {
		p.a.opts.Log.Debug("cannot write to the agent process", "error", err)
	}
}

// Publish publishes events of the run.
func (p *Process) Publish(events ...contracts.Event) { p.a.check(p.a.host.Publish(p.life, events...)) }

// Status publishes a text of at most 8 KiB now, or with the next run if there is none.
func (p *Process) Status(text string) {
	text = abridge.Bytes(text, maxStatus)
	if p.Run() == nil {
		p.a.notes.Add(text)
		return
	}
	p.Publish(&contracts.Status{Message: text})
}

// StartResponse opens a response unless one is open.
func (p *Process) StartResponse() {
	if r := p.Run(); r != nil && !r.Open() {
		p.a.check(r.Start(p.life))
	}
}

// Say publishes a piece of the answer or of the reasoning, in a new response if none is
// open.
func (p *Process) Say(text string, thinking bool) {
	r := p.Run()
	if r == nil || text == "" {
		return
	}
	p.StartResponse()
	add := r.Say
	if thinking {
		add = r.Think
	}
	for _, piece := range contracts.SplitText(text, contracts.MaxTextBytes) {
		p.a.check(add(p.life, piece))
	}
}

// EndResponse ends the open response, if there is one.
func (p *Process) EndResponse(used contracts.Usage) {
	if r := p.Run(); r != nil && r.Open() {
		p.a.check(r.End(p.life, used))
	}
}

// Ask asks the clients a question of the run, and passes the outcome to then if the run
// still goes on and is not being interrupted. then is called like a method of the
// speaker. The returned function withdraws the question; then gets an error.
func (p *Process) Ask(req *contracts.ServerRequest, timeout time.Duration, then func(contracts.Outcome, error)) (withdraw func()) {
	r := p.run
	ctx, cancel := context.WithCancel(r.ctx)
	r.asking.Go(func() { // ends with the question, the run or the process
		defer cancel()
		out, err := p.a.host.Ask(ctx, req, contracts.AskOptions{Timeout: timeout})
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.Run() == r && !r.stopping.Load() {
			then(out, err)
		}
	})
	return cancel
}

// Args returns the arguments of a call for clients: masked, and with omitted_bytes in
// their place if they have more than 128 KiB. omitted is the number of these bytes.
func Args(args []byte) (shown []byte, omitted int) {
	if len(args) > maxArgs {
		return fmt.Appendf(nil, `{"omitted_bytes":%d}`, len(args)), len(args)
	}
	return mask.Args(args), 0
}
