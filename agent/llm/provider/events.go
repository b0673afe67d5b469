package provider

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// maxLineBytes is the longest line of a stream. A response that ends repeats all
// that the model said in one line.
const maxLineBytes = 32 << 20

// events are the answer to a request: server-sent events whose data are JSON
// objects that name their own types. The names of the events are not read.
type events struct {
	watch *watch
	body  io.Closer // nil if the request failed
	lines *bufio.Scanner
	err   error // why next returned false; nil at the end of the stream
}

// send posts a request to a path below the service's base. If the request fails,
// the stream has only an error.
func (w *watch) send(path string, request any) *events {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if e.Encode(request) != nil { // the error may show what the history holds
		return &events{err: &model.Error{Kind: model.KindInvalid, Message: w.service.name + ": the request is not JSON"}}
	}
	res, err := w.post(path, &body)
	if err != nil {
		return &events{err: err}
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxLineBytes)
	return &events{watch: w, body: res.Body, lines: lines}
}

// post sends a body. An answer that is not a success is an error of type
// *model.Error.
func (w *watch) post(path string, body *bytes.Buffer) (*http.Response, error) {
	s := w.service
	u := *s.base
	u.Path += path
	w.asked = s.redact((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), nil)
	r, err := http.NewRequestWithContext(w.ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return nil, err
	}
	r.Header = w.header
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "maestro")
	res, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		w.answered, w.page = true, strings.HasPrefix(res.Header.Get("Content-Type"), "text/html")
		res.Body = &watchedBody{res.Body, w}
		return res, nil
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBytes)) // what is missing is not needed
	_ = res.Body.Close()
	return nil, s.refusal(res, text, w.asked, w.texts)
}

// next reads the next event into event, which must be empty. It returns false at
// the end of the stream, at [DONE] and on errors. An event with an error in it
// is the error of the stream.
func (s *events) next(event any) bool {
	data, ok := s.data()
	if !ok || bytes.HasPrefix(data, []byte("[DONE]")) {
		return false
	}
	if bytes.Contains(data, []byte(`"error"`)) {
		var failed struct {
			Type  string          `json:"type"`
			Error json.RawMessage `json:"error"`
		}
		if decode(data, &failed) == nil && (failed.Type == "error" || len(failed.Error) > 0 && string(failed.Error) != "null") {
			s.err = s.watch.service.broke(data, s.watch.texts)
			return false
		}
	}
	s.err = decode(data, event)
	return s.err == nil
}

// data returns the data of the next event that has any. The lines of one event
// are joined.
func (s *events) data() (data []byte, ok bool) {
	if s.err != nil {
		return nil, false
	}
	for s.lines.Scan() {
		line := s.lines.Bytes()
		if len(line) == 0 && len(data) > 0 {
			return data, true
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		}
	}
	s.err = s.lines.Err()
	return nil, false
}

func (s *events) close() {
	if s.body != nil {
		_ = s.body.Close() // what is left is not wanted
	}
}

// decode reads JSON into v. Compatible services give some members other types;
// those stay empty.
func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}
