package chaos

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

// maxText bounds a WebSocket text and the body of a request in bytes. A longer text ends
// the connection, and a longer body is cut.
const maxText = 64 << 20

// A Proxy is an [http.Handler] that passes requests to a server and injects faults
// into what goes either way, on HTTP, event streams and WebSockets.
type Proxy struct {
	to     *url.URL
	faults []Fault
	http   *httputil.ReverseProxy
	dialer *http.Client

	mu       sync.Mutex // guards the counters
	requests []counted
	answers  []counted
}

// NewProxy returns a proxy for the server at an address such as http://HOST:PORT.
func NewProxy(address string, faults []Fault) (*Proxy, error) {
	to, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	to = &url.URL{Scheme: strings.Replace(to.Scheme, "ws", "http", 1), Host: to.Host}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}
	p := &Proxy{to: to, faults: faults, dialer: &http.Client{Transport: transport},
		requests: choose(faults, Request), answers: choose(faults, Answer)}
	p.http = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
			r.Out.Host = r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			// Streams get a connection each: a server may close the one of a stream that has
			// ended, and a message that is sent on it meanwhile would be lost.
			r.Out.Close = nameOf(r.In) == "events"
		},
		ModifyResponse: p.answer,
		ErrorLog:       log.New(io.Discard, "", 0), // a link that a fault cuts is no error
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // the client sees what the server does when it hangs up
		},
	}
	return p, nil
}

// Close drops idle connections to the server.
func (p *Proxy) Close() { p.dialer.CloseIdleConnections() }

// ServeHTTP passes on a request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The whole body is read first: a body that the server answers before the transport
	// has seen its end would be closed while the transport reads it, and the answer lost.
	body, err := io.ReadAll(io.LimitReader(r.Body, maxText))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if body, goesOn := p.request(w, r, body); !goesOn {
		return
	} else if r.Body = io.NopCloser(bytes.NewReader(body)); r.ContentLength >= 0 {
		r.ContentLength = int64(len(body))
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		p.socket(w, r)
		return
	}
	p.http.ServeHTTP(w, r)
}

// due returns the faults that apply to one request or answer.
func (p *Proxy) due(counters []counted, t *text, subject ...string) []*Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due []*Fault
	for i := range counters {
		if c := &counters[i]; c.concerns(subject...) && c.holds(t) && c.due() {
			due = append(due, c.Fault)
		}
	}
	return due
}

// nameOf is the last element of a request's path.
func nameOf(r *http.Request) string { return path.Base(r.URL.Path) }

// request injects faults into a request. It returns the body, and reports whether the
// request goes on.
func (p *Proxy) request(w http.ResponseWriter, r *http.Request, body []byte) ([]byte, bool) {
	if len(p.requests) == 0 {
		return body, true
	}
	t := parseText(body)
	for _, f := range p.due(p.requests, t, r.Method, nameOf(r)) {
		key, value, _ := strings.Cut(f.Arg, "=")
		switch f.Action {
		case "drop":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{}")) // a client that has gone needs nothing
			return nil, false
		case "delay":
			if wait(r.Context(), f.Arg) != nil {
				return nil, false
			}
		case "header":
			setHeader(r.Header, key, value)
		case "query":
			q := r.URL.Query()
			if q.Del(key); value != "" {
				q.Set(key, value)
			}
			r.URL.RawQuery = q.Encode()
		case "path":
			r.URL.Path, r.URL.RawPath = string(substitute(f.Arg, []byte(r.URL.Path))), ""
		default:
			t.alter(f.Action, f.Arg)
		}
	}
	return t.bytes(), true
}

func setHeader(h http.Header, name, value string) {
	if h.Del(name); value != "" {
		h.Set(name, value)
	}
}

// answer injects faults into an answer, or into the stream that it begins.
func (p *Proxy) answer(resp *http.Response) error {
	r := resp.Request
	streams := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	var t *text
	switch {
	case streams:
		t = parseText(nil)
	case len(p.answers) == 0:
		return nil
	default:
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		_ = resp.Body.Close() // it was read
		t = parseText(body)
	}
	cut := false
	for _, f := range p.due(p.answers, t, r.Method, nameOf(r), strconv.Itoa(resp.StatusCode)) {
		key, value, _ := strings.Cut(f.Arg, "=")
		switch f.Action {
		case "drop":
			return errCut
		case "cut":
			cut = true
		case "delay":
			if err := wait(r.Context(), f.Arg); err != nil {
				return err
			}
		case "status":
			resp.StatusCode, _ = strconv.Atoi(f.Arg)
		case "header":
			setHeader(resp.Header, key, value)
		case "forge":
			status, body, _ := strings.Cut(f.Arg, " ")
			resp.StatusCode, _ = strconv.Atoi(status)
			resp.Header.Set("Content-Type", "application/json")
			if streams {
				_ = resp.Body.Close() // nobody reads the stream
			}
			streams, t = false, parseText([]byte(body))
		case "file":
			if err := alterFile(t, f.Arg); err != nil {
				return err
			}
		default:
			t.alter(f.Action, f.Arg)
		}
	}
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	if streams {
		if l := (link{faults: choose(p.faults, Server), events: true}); cut {
			_ = resp.Body.Close() // nobody reads the stream
			resp.Body = cutBody(nil)
		} else if len(l.faults) > 0 {
			resp.Body = l.stream(r.Context(), resp.Body)
		}
		return nil
	}
	body := t.bytes()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if cut {
		resp.Body = cutBody(body[:len(body)/2])
	}
	return nil
}

// cutBody returns a body that ends with an error.
func cutBody(data []byte) io.ReadCloser {
	nothing, end := io.Pipe()
	_ = end.CloseWithError(errCut) // always nil
	return io.NopCloser(io.MultiReader(bytes.NewReader(data), nothing))
}

// alterFile sets a value in the file that an answer names.
func alterFile(t *text, arg string) error {
	name, _ := t.at("manifest_path")
	file, _ := name.(string)
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	inside := parseText(data)
	inside.alter("set", arg)
	return os.WriteFile(file, inside.bytes(), 0o600)
}

// stream returns the body of an event stream with faults in it.
func (l *link) stream(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	in := bufio.NewReader(body)
	out, into := io.Pipe()
	go func() { // ends with body, which ends with ctx
		defer func() { _ = body.Close() }() // it was read
		err := l.pump(ctx, func() ([]byte, error) { return readEvent(in) }, func(event []byte) error {
			_, err := into.Write(event)
			return err
		})
		switch err {
		case io.EOF:
			l.end(ctx, 0, "")
		case errEnd:
			err = io.EOF
		}
		_ = into.CloseWithError(err) // always nil
	}()
	return out
}

// readEvent reads up to the next blank line.
func readEvent(in *bufio.Reader) ([]byte, error) {
	var event []byte
	for {
		line, err := in.ReadBytes('\n')
		if event = append(event, line...); err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			return event, nil
		}
	}
}

// socket connects a WebSocket to the server and passes texts both ways.
func (p *Proxy) socket(w http.ResponseWriter, r *http.Request) {
	header := r.Header.Clone()
	offered := strings.FieldsFunc(strings.Join(header.Values("Sec-Websocket-Protocol"), ","),
		func(c rune) bool { return c == ',' || c == ' ' })
	maps.DeleteFunc(header, func(name string, _ []string) bool {
		return strings.HasPrefix(name, "Sec-Websocket-") || name == "Upgrade" || name == "Connection"
	})
	to := *p.to
	to.Path, to.RawQuery = r.URL.Path, r.URL.RawQuery
	server, resp, err := websocket.Dial(r.Context(), to.String(), &websocket.DialOptions{HTTPClient: p.dialer, HTTPHeader: header, Host: r.Host, Subprotocols: offered})
	if err != nil && resp == nil {
		panic(http.ErrAbortHandler)
	}
	resp.Request = r
	if err != nil {
		if p.answer(resp) != nil {
			panic(http.ErrAbortHandler)
		}
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body) // a client that has gone needs nothing
		return
	}
	defer func() { _ = server.CloseNow() }() // it may be closed
	options := &websocket.AcceptOptions{InsecureSkipVerify: true}
	if chosen := server.Subprotocol(); chosen != "" {
		options.Subprotocols = []string{chosen}
	}
	client, err := websocket.Accept(w, r, options)
	if err != nil {
		return // the client has its answer
	}
	defer func() { _ = client.CloseNow() }() // it may be closed
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { // ends with the client, or when the server's side cancels
		carry(ctx, client, server, link{faults: choose(p.faults, Client)})
		cancel()
	})
	carry(ctx, server, client, link{faults: choose(p.faults, Server)})
	cancel()
	wg.Wait()
}

// carry passes texts from one end of a WebSocket to the other until either ends, and
// passes the end on.
func carry(ctx context.Context, from, to *websocket.Conn, l link) {
	from.SetReadLimit(maxText)
	err := l.pump(ctx, func() ([]byte, error) {
		for {
			kind, data, err := from.Read(ctx)
			if err != nil {
				return nil, err // data would be a part of a text
			}
			if kind == websocket.MessageText {
				return data, nil
			}
			if err := to.Write(ctx, kind, data); err != nil {
				return nil, err
			}
		}
	}, func(text []byte) error { return to.Write(ctx, websocket.MessageText, text) })
	closed, ok := errors.AsType[websocket.CloseError](err)
	if !ok {
		_ = to.CloseNow() // it may be closed
		return
	}
	code := closed.Code
	if code == websocket.StatusNoStatusRcvd || code == websocket.StatusAbnormalClosure {
		code = websocket.StatusNormalClosure // the others cannot be sent
	}
	e := l.end(ctx, int(code), closed.Reason)
	_ = to.Close(websocket.StatusCode(e.Code), e.Reason) // it may be closed
}
