package provider

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var providers = []string{Anthropic, OpenAI, OpenAIChat}

// open returns a model of a provider that is served by handler.
func open(t *testing.T, provider string, handler http.Handler, more ...func(*Options)) model.Model {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	o := Options{Provider: provider, Model: "local", BaseURL: server.URL}
	for _, f := range more {
		f(&o)
	}
	return through(t, server.Client().Transport, o)
}

// through returns a model whose requests go through a transport.
func through(t *testing.T, transport http.RoundTripper, o Options) *service {
	t.Helper()
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	s := m.(*service)
	s.client.Transport = transport
	return s
}

// prompt is a request with nothing but a prompt.
func prompt(text string) *model.Request {
	return &model.Request{Messages: []model.Message{said(model.RoleUser, text)}}
}

func said(role model.Role, text string) model.Message {
	return model.Message{Role: role, Parts: []model.Part{{Text: &text}}}
}

// A heardReply is a reply with what was said while it came.
type heardReply struct {
	model.Reply
	text, thinking string
	deltas         int
}

// stream asks and listens.
func stream(ctx context.Context, m model.Model, req *model.Request) (heardReply, error) {
	var h heardReply
	var text, thinking strings.Builder
	reply, err := m.Stream(ctx, req, func(d model.Delta) error {
		h.deltas++
		if d.Thinking {
			thinking.WriteString(d.Text)
		} else {
			text.WriteString(d.Text)
		}
		return nil
	})
	h.Reply, h.text, h.thinking = reply, text.String(), thinking.String()
	return h, err
}

// mustStream is stream for replies that have to succeed.
func mustStream(t *testing.T, m model.Model, req *model.Request) heardReply {
	t.Helper()
	h, err := stream(t.Context(), m, req)
	if err != nil {
		t.Fatalf("got %v, want a reply", err)
	}
	return h
}

// text, thinking and calls are what a message holds of each.
func text(m model.Message) (text string) {
	for _, p := range m.Parts {
		if p.Text != nil {
			text += *p.Text
		}
	}
	return text
}

func thinking(m model.Message) (text string) {
	for _, p := range m.Parts {
		if p.Thinking != nil {
			text += p.Thinking.Text
		}
	}
	return text
}

func calls(m model.Message) (calls []*model.Call) {
	for _, p := range m.Parts {
		if p.Call != nil {
			calls = append(calls, p.Call)
		}
	}
	return calls
}

// failed returns the error of a provider in err.
func failed(t *testing.T, err error) *model.Error {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		t.Fatalf("got %v, want an error of the provider", err)
	}
	return e
}

// local is a local model server that keeps what it was asked.
func local(o localmodel.Options) *localmodel.Server { return localmodel.New(o) }
