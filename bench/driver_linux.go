package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A driver is the controller of a session, over a WebSocket.
type driver struct{ *wire }

// runEnd is in the last message of every run. Before that message the server refuses another prompt.
const runEnd = `"agent_end"`

// drive attaches a controller to a session of a server, which it creates if there
// is none.
func (t *trial) drive(s *server, session string) driver {
	w := must(dialWire(s.addr, operatorDialect(session)))
	t.atEnd(w.close)
	return driver{w}
}

// serveDriven starts the program as serve does, and attaches a controller to its
// session.
func (t *trial) serveDriven(dir, agent string, flags ...string) (*server, driver) {
	s := t.serve(dir, agent, flags...)
	return s, t.drive(s, s.session)
}

// command sends a command.
func (d driver) command(c contracts.Command) error {
	text, err := contracts.EncodeCommand(c)
	if err != nil {
		return err
	}
	return d.send(text)
}

// await reads messages until each mark has been in one of them, in any order. It fails if
// an error or a reset comes first.
func (d driver) await(marks ...string) error {
	var goodbye []byte // why the server ends the connection
	for {
		payload, err := d.next()
		if err != nil {
			return fmt.Errorf("wait for %s: %w %s", marks, err, goodbye)
		}
		if bytes.HasPrefix(payload, []byte(`{"type":"ws.goodbye"`)) {
			goodbye = bytes.Clone(payload)
		}
		if bytes.Contains(payload, []byte(`"type":"error"`)) || bytes.HasPrefix(payload, []byte(`{"type":"ws.error"`)) ||
			bytes.HasPrefix(payload, []byte(`{"type":"reset"`)) {
			return fmt.Errorf("wait for %s: got %.300s", marks, payload)
		}
		marks = slices.DeleteFunc(marks, func(mark string) bool { return bytes.Contains(payload, []byte(mark)) })
		if len(marks) == 0 {
			return nil
		}
	}
}

// prompt sends a prompt and waits for the end of its run.
func (d driver) prompt(content string) error {
	if err := d.command(&contracts.Prompt{Content: content}); err != nil {
		return err
	}
	return d.await(runEnd)
}

// call makes a request of the server's API, on behalf of a connection unless that
// is empty.
func (s *server) call(method, path, connection string, body []byte) (answer []byte, header http.Header) {
	r := must(http.NewRequestWithContext(s.ctx, method, s.url(path), bytes.NewReader(body)))
	r.Header.Set("Content-Type", "application/json")
	if connection != "" {
		r.Header.Set("X-Maestro-Headless-Connection-Id", connection)
	}
	resp := must(http.DefaultClient.Do(r))
	answer, err := io.ReadAll(resp.Body)
	check(errors.Join(err, resp.Body.Close()))
	if resp.StatusCode != http.StatusOK {
		check(fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, answer))
	}
	return answer, resp.Header
}

func (s *server) url(path string) string { return "http://" + s.addr + "/api/headless/" + path }

// connectTo makes a connection over HTTP, in a new session if session is empty.
func (s *server) connectTo(session string, role contracts.Role) (got contracts.ConnectionAnswer) {
	body := must(contracts.EncodeBody(&contracts.AttachRequest{SessionID: session, Role: role}))
	answer, _ := s.call(http.MethodPost, "connections", "", body)
	check(new(contracts.Decoder).Body(answer, &got))
	return got
}

// post sends one command over HTTP.
func (s *server) post(at contracts.ConnectionAnswer, c contracts.Command) {
	s.call(http.MethodPost, "sessions/"+at.SessionID+"/messages", at.ConnectionID, must(contracts.EncodeCommand(c)))
}

// sseViewers follow one session's events over HTTP. Each is a goroutine, because
// only the server's costs are measured.
type sseViewers struct {
	count int
	path  string        // of the events, below those of the protocol
	url   string        // of the events, if path is empty
	every time.Duration // from one to the next; zero: all come at once

	// read reads what a viewer waits for; nil: it waits for the answer's header.
	read func(ctx context.Context, events io.Reader) error
}

// attach attaches the viewers, each again as often as it is refused, and closes
// their streams when all have read what they wait for. refused counts the
// refusals, took is the time until the last had read.
func (v sseViewers) attach(s *server) (refused int, took time.Duration) {
	needFiles(v.count)
	ctx, leave := context.WithCancel(s.ctx)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: v.count}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer leave()
	type arrival struct {
		refused int
		err     error
	}
	arrivals := make(chan arrival, v.count)
	began := time.Now()
	for i := range v.count {
		wg.Go(func() { // ends with ctx
			if pause(ctx, time.Duration(i)*v.every) != nil {
				return
			}
			events, refused, err := openStream(ctx, client, cmp.Or(v.url, s.url(v.path)))
			if err == nil {
				defer func() { _ = events.Close() }() // the viewer leaves, whatever is left to read
				if v.read != nil {
					err = v.read(ctx, events)
				}
			}
			arrivals <- arrival{refused, err}
			<-ctx.Done()
		})
	}
	for i := range v.count {
		select {
		case a := <-arrivals:
			if a.err != nil {
				check(fmt.Errorf("after %d viewers: %w", i, a.err))
			}
			refused += a.refused
		case <-ctx.Done():
			check(context.Cause(ctx))
		}
	}
	return refused, time.Since(began)
}

// openStream asks for events until it is not refused.
func openStream(ctx context.Context, client *http.Client, url string) (events io.ReadCloser, refused int, err error) {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, refused, err
		}
		r.Header.Set("Accept", "text/event-stream")
		resp, err := client.Do(r)
		if err != nil {
			return nil, refused, err
		}
		if resp.StatusCode == http.StatusOK {
			return resp.Body, refused, nil
		}
		answer, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return nil, refused, err
		}
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil {
			return nil, refused, fmt.Errorf("events refused: %s: %.300s", resp.Status, answer)
		}
		refused++
		if err := pause(ctx, time.Duration(seconds)*time.Second); err != nil {
			return nil, refused, err
		}
	}
}

// readEvent reads the first event of a stream, and returns the size of its data.
func readEvent(events io.Reader) (size int, err error) {
	in := bufio.NewReaderSize(events, 64<<10)
	data := false
	for start := true; ; {
		part, err := in.ReadSlice('\n')
		if start {
			data = bytes.HasPrefix(part, []byte("data: "))
		}
		if data {
			size += len(part)
		}
		switch {
		case err == nil && data:
			return size, nil
		case err != nil && err != bufio.ErrBufferFull:
			return size, err
		}
		start = err == nil
	}
}
