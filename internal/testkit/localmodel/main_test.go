package localmodel_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A place is a server that listens.
type place struct {
	*localmodel.Server
	url    string
	client *http.Client
}

func serve(t *testing.T, o localmodel.Options) place {
	t.Helper()
	s := localmodel.New(o)
	listener := httptest.NewServer(s)
	t.Cleanup(listener.Close)
	return place{s, listener.URL, listener.Client()}
}

// post sends a request and returns the status, header and body of the answer,
// with the error that cut it short.
func (p place) post(t *testing.T, path, body string) (status int, header http.Header, answer string, err error) {
	t.Helper()
	res, err := p.client.Post(p.url+path, "application/json", bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(data), err
}

// A form is how one of the wire forms asks for a prompt.
type form struct {
	name string
	path string
	ask  func(prompt string) string
}

var forms = []form{
	{"anthropic", "/v1/messages", func(prompt string) string {
		return encoded(map[string]any{"model": "m", "max_tokens": 100, "stream": true,
			"messages": []any{map[string]any{"role": "user", "content": prompt}},
			"tools":    []any{map[string]any{"name": "bash", "input_schema": map[string]any{"type": "object"}}}})
	}},
	{"responses", "/v1/responses", func(prompt string) string {
		return encoded(map[string]any{"model": "m", "stream": true, "input": prompt,
			"include": []string{"reasoning.encrypted_content"},
			"tools":   []any{map[string]any{"type": "function", "name": "bash"}}})
	}},
	{"chat", "/v1/chat/completions", func(prompt string) string {
		return encoded(map[string]any{"model": "m", "stream": true, "stream_options": map[string]any{"include_usage": true},
			"messages": []any{map[string]any{"role": "user", "content": prompt}},
			"tools":    []any{map[string]any{"type": "function", "function": map[string]any{"name": "bash"}}}})
	}},
}

func encoded(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}
