package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

const (
	patience = time.Minute           // for all that one round waits for
	moment   = 20 * time.Millisecond // a kill comes up to so much later than what it waits for
	closest  = 0.9                   // the largest part of a stream that somebody has seen before a kill
	perLine  = 10                    // kills told of in one line

	// Of every three kills the second comes while a question is asked, and the
	// third in a stream while that question waits. Then it is answered.
	cycle, asksAt, answersAt = 3, 2, 0
)

// A trial is one session of one server, its followers and what was found.
type trial struct {
	plan
	server *server
	random *rand.Rand

	controller *client.Client
	clients    []*client.Client // the controller is the first
	records    []*record        // of the clients, then of the loner
	stop       context.CancelFunc
	wg         sync.WaitGroup // the followers

	journal []delivery // as a newcomer read it the last time
	mark    uint64     // up to here everything was compared

	done      int // kills
	delivered int
	faults    faults
	question  string // the id of the one that waits
	asked     int
	answers   int // questions that were answered once after their kills
}

// newTrial starts a server in a directory of its own.
func newTrial(p plan) (*trial, error) {
	dir, err := os.MkdirTemp("", "maestro-kills-")
	if err != nil {
		return nil, err
	}
	s, err := newServer(p.binary, dir, p.events)
	if err == nil {
		err = s.start()
	}
	if err != nil {
		return nil, errors.Join(err, s.kill(), os.RemoveAll(dir))
	}
	return &trial{plan: p, server: s, random: rand.New(rand.NewPCG(p.seed, 0))}, nil
}

// close ends the server and the followers and removes the directory.
func (t *trial) close() error {
	err := t.server.kill()
	if t.stop != nil {
		t.stop()
	}
	for _, c := range t.clients {
		c.Close(false)
	}
	t.wg.Wait()
	return errors.Join(err, os.RemoveAll(t.server.dir))
}

// run attaches the followers and kills the server as often as planned.
func (t *trial) run(ctx context.Context) error {
	if err := t.attach(ctx); err != nil {
		return fmt.Errorf("attach the followers: %w", err)
	}
	for t.done < t.plan.kills {
		t.done++
		if err := t.round(ctx); err != nil {
			return fmt.Errorf("kill %d: %w", t.done, err)
		}
		if t.done%perLine == 0 && t.done < t.plan.kills {
			fmt.Println(t.summary())
		}
		if !t.clean() {
			return nil // what follows from a fault is of no interest
		}
	}
	return nil
}

// attach starts the followers, all from the beginning of the journal.
func (t *trial) attach(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	life, stop := context.WithCancel(context.Background())
	t.stop = stop
	for i := range t.followers {
		name, role := fmt.Sprintf("viewer-%d", i), contracts.RoleViewer
		if i == 0 {
			name, role = "controller", contracts.RoleController
		}
		c, err := client.Dial(ctx, t.server.base(), client.WithHistory(), client.WithHello(hello(name, role)), client.WithReconnect(comeBack))
		if err != nil {
			return err
		}
		r := newRecord(name)
		t.clients, t.records = append(t.clients, c), append(t.records, r)
		t.wg.Go(func() { follow(life, c, r) }) // ends with life or the client
	}
	t.controller = t.clients[0]
	l := &loner{record: newRecord("loner"), base: t.server.base()}
	t.records = append(t.records, l.record)
	t.wg.Go(func() { l.follow(life) }) // ends with life
	return nil
}

// round is one kill and everything that is looked at afterwards.
func (t *trial) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	var err error
	if t.done%cycle == asksAt {
		err = t.ask(ctx)
	} else {
		err = t.stream(ctx)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(sleep.For(ctx, time.Duration(t.random.Int64N(int64(moment)))), t.server.kill()); err != nil {
		return err
	}
	if err := t.server.start(); err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if t.question == "" {
		return nil
	}
	return t.checkQuestion(ctx)
}

// stream starts a stream and waits until some follower has seen a random part.
func (t *trial) stream(ctx context.Context) error {
	if _, err := t.controller.Prompt(ctx, promptStream); err != nil {
		return fmt.Errorf("start a stream: %w", err)
	}
	part := 1 + t.random.IntN(int(closest*float64(t.events)))
	r := t.records[t.random.IntN(len(t.records))]
	return r.await(ctx, fmt.Sprintf("word %d of a stream", part), func() bool { return r.words >= part })
}

// ask has a question asked that waits from now on.
func (t *trial) ask(ctx context.Context) error {
	if _, err := t.controller.Prompt(ctx, promptAsk); err != nil {
		return fmt.Errorf("have a question asked: %w", err)
	}
	r := t.records[len(t.records)-1]
	err := r.await(ctx, "a question", func() bool { return r.asked != "" && r.ended[r.asked] == 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	t.question = r.asked
	t.asked++
	return err
}

// settle has the server publish a mark, waits until everybody was shown it, and
// compares what was shown since the last.
func (t *trial) settle(ctx context.Context) error {
	result, err := t.controller.Send(ctx, &contracts.Init{}) // publishes one status, and nothing follows from it
	if err != nil {
		return fmt.Errorf("set a mark: %w", err)
	}
	for _, r := range t.records {
		err := r.await(ctx, fmt.Sprintf("the mark at %d", result.Cursor), func() bool { return r.cursor >= result.Cursor })
		if err != nil {
			return err
		}
	}
	journal, err := replay(ctx, t.server.base(), result.Cursor)
	if err != nil {
		return err
	}
	t.judge(journal, result.Cursor)
	return nil
}

// judge compares everybody's deliveries up to mark with the journal, and with
// each other: a merged piece of the journal can hide that two were shown
// different texts up to the same cursor.
func (t *trial) judge(journal []delivery, mark uint64) {
	if len(journal) == 0 || journal[len(journal)-1].cursor != mark {
		t.faults.losses++
		t.faults.note("newcomer: the mark at %d is not in the journal", mark)
	}
	old := slices.IndexFunc(journal, func(d delivery) bool { return d.cursor > t.mark })
	if old < 0 {
		old = len(journal)
	}
	found := compare("the journal, read again", t.journal, journal[:old])
	since := make([][]delivery, len(t.records))
	for i, r := range t.records {
		since[i] = r.cut(mark)
		found.add(compare(r.name, journal[old:], since[i]))
		found.add(r.takeFaults())
		t.delivered += len(since[i])
	}
	for i := range since {
		for j := i + 1; j < len(since) && found.clean(); j++ {
			found.add(compare(t.records[j].name+" beside "+t.records[i].name, since[i], since[j]))
		}
	}
	t.faults.add(found)
	t.journal, t.mark = journal, mark
}

// checkQuestion looks for the question that waits in a newcomer's snapshot.
// Once it has been through both of its kills, it is answered.
func (t *trial) checkQuestion(ctx context.Context) error {
	waiting, err := pending(ctx, t.server.base())
	if err != nil {
		return err
	}
	if !slices.Contains(waiting, t.question) {
		t.faults.losses++
		t.faults.note("question %s is not in the snapshot", t.question)
		t.question = ""
		return nil
	}
	if t.done%cycle != answersAt && t.done < t.plan.kills {
		return nil
	}
	return t.answer(ctx)
}

// answer approves and denies the question at once: one of the two must win, and
// everybody must be shown one end of it.
func (t *trial) answer(ctx context.Context) error {
	id := t.question
	t.question = ""
	denied := make(chan error, 1)
	go func() { // ends with ctx at the latest
		_, err := t.controller.Deny(ctx, id, "")
		denied <- err
	}()
	_, approval := t.controller.Approve(ctx, id, "")
	denial := <-denied
	late := &contracts.Error{Code: contracts.CodeRequestNotFound}
	if !(approval == nil && errors.Is(denial, late)) && !(denial == nil && errors.Is(approval, late)) {
		t.faults.changes++
		t.faults.note("question %s: approving got %v and denying %v, want one success and one %s", id, approval, denial, late.Code)
		return nil
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	waiting, err := pending(ctx, t.server.base())
	if err != nil {
		return err
	}
	once := !slices.Contains(waiting, id)
	for _, r := range t.records {
		if n := r.ends(id); n != 1 {
			once = false
			t.faults.note("%s was shown %d ends of question %s", r.name, n, id)
		}
	}
	if once {
		t.answers++
	}
	return nil
}

// clean reports whether nothing was found and every question was answered that
// is not waiting.
func (t *trial) clean() bool {
	waiting := 0
	if t.question != "" {
		waiting = 1
	}
	return t.faults.clean() && t.answers+waiting == t.asked
}

// summary is the state of the trial on one line, and what was found below it.
func (t *trial) summary() string {
	s := fmt.Sprintf("%d kills, %d followers, %d deliveries: %d losses, %d duplicates, %d changes, %d of %d questions answered after the restart",
		t.done, len(t.records), t.delivered, t.faults.losses, t.faults.duplicates, t.faults.changes, t.answers, t.asked)
	for _, e := range t.faults.examples {
		s += "\n  " + e
	}
	return s
}
