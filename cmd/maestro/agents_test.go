//go:build unix

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// An attendee is a client that keeps what it has read.
type attendee struct {
	*client.Client
	t      *testing.T
	name   string
	events []contracts.Event
	said   strings.Builder // all answers, without reasoning
}

// attend attaches a client of that role which can answer what it is asked, if
// these are all the kinds.
func (r *running) attend(name string, role contracts.Role, answers []contracts.RequestType, opts ...client.Option) *attendee {
	r.t.Helper()
	opts = append(opts, client.WithTakeover(contracts.TakeoverLater), client.WithHello(contracts.Hello{
		Role: role, Capabilities: &contracts.Capabilities{ServerRequests: answers},
	}))
	return &attendee{Client: r.attach(opts...), t: r.t, name: name}
}

// await reads until an event is what is wanted, and returns it.
func (f *attendee) await(what string, is func(contracts.Event) bool) contracts.Event {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for {
		u, err := f.Next(ctx)
		if err != nil {
			f.t.Fatalf("%s: got %v, want %s; read:\n%s", f.name, err, what, f.told())
		}
		if u.Event == nil {
			continue
		}
		f.events = append(f.events, u.Event)
		if chunk, ok := u.Event.(*contracts.ResponseChunk); ok && !chunk.IsThinking {
			f.said.WriteString(chunk.Content)
		}
		if is(u.Event) {
			return u.Event
		}
	}
}

// told is everything that was read, as it is on the wire.
func (f *attendee) told() string {
	var all strings.Builder
	for _, ev := range f.events {
		text, err := contracts.EncodeEvent(ev)
		if err != nil {
			f.t.Fatal(err)
		}
		all.Write(text.Body)
		all.WriteByte('\n')
	}
	return all.String()
}

// asked waits for a question.
func (f *attendee) asked() *contracts.ServerRequest {
	f.t.Helper()
	return f.await("a question", func(ev contracts.Event) bool {
		_, ok := ev.(*contracts.ServerRequest)
		return ok
	}).(*contracts.ServerRequest)
}

// says waits until the answers since now have a text in them and the response
// has ended.
func (f *attendee) says(text string) {
	f.t.Helper()
	from := f.said.Len()
	f.await("to be told "+text, func(ev contracts.Event) bool {
		_, ok := ev.(*contracts.ResponseEnd)
		return ok && strings.Contains(f.said.String()[from:], text)
	})
}

// status waits for a status with a text in it.
func (f *attendee) status(text string) {
	f.t.Helper()
	f.await("the status "+text, func(ev contracts.Event) bool {
		status, ok := ev.(*contracts.Status)
		return ok && strings.Contains(status.Message, text)
	})
}

// fails waits for an error.
func (f *attendee) fails() *contracts.ErrorEvent {
	f.t.Helper()
	return f.await("an error", func(ev contracts.Event) bool {
		_, ok := ev.(*contracts.ErrorEvent)
		return ok
	}).(*contracts.ErrorEvent)
}

// prompts starts a run. The end of a response comes a moment before that of the
// run it was in, so that the answer may be to wait.
func (f *attendee) prompts(text string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	_, err := f.Prompt(ctx, text)
	for errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeBusy}) {
		_, err = f.Prompt(ctx, text)
	}
	if err != nil {
		f.t.Fatalf("%s: prompt: %v", f.name, err)
	}
}

// takes claims the lease.
func (f *attendee) takes() {
	f.t.Helper()
	if _, err := f.TakeControl(f.t.Context()); err != nil {
		f.t.Fatalf("%s: take control: %v", f.name, err)
	}
}

// interrupts ends the run and waits until that is shown.
func (f *attendee) interrupts() {
	f.t.Helper()
	if _, err := f.Interrupt(f.t.Context()); err != nil {
		f.t.Fatalf("%s: interrupt: %v", f.name, err)
	}
	if failed := f.fails(); failed.ErrorType != contracts.ErrorCancelled {
		f.t.Errorf("%s: got %+v, want that the run was interrupted", f.name, failed)
	}
}

// modelServer serves a model without a model.
func modelServer(t *testing.T, o localmodel.Options) (*localmodel.Server, string) {
	t.Helper()
	m := localmodel.New(o)
	return m, webServer(t, m)
}

func webServer(t *testing.T, h http.Handler) string {
	web := httptest.NewServer(h)
	t.Cleanup(func() {
		web.CloseClientConnections() // replies that hang do not end by themselves
		web.Close()
	})
	return web.URL
}

// lastBody is the last request that a model got.
func lastBody(t *testing.T, m *localmodel.Server) string {
	t.Helper()
	requests := m.Requests()
	if len(requests) == 0 {
		t.Fatal("the model was not asked")
	}
	return string(requests[len(requests)-1].Body)
}
