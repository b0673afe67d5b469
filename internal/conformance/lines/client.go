// Package lines has what the suites about protocols of JSON lines have in common: a
// [Client] on the standard streams of a server that it starts, and a [Model] that answers
// the server's agent as a scenario says.
package lines

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// Object is a JSON object.
type Object = map[string]any

// A Line is one line of a server.
type Line struct {
	Raw  []byte
	Body Object
}

// Str returns the text at a path such as error.code, or nothing.
func (l Line) Str(path string) string {
	text, _ := At(l.Body, path).(string)
	return text
}

// Num returns the number at a path, and whether there is one.
func (l Line) Num(path string) (float64, bool) {
	n, ok := At(l.Body, path).(float64)
	return n, ok
}

// Has reports whether there is a value other than null at a path.
func (l Line) Has(path string) bool { return At(l.Body, path) != nil }

// String shows the line, abridged.
func (l Line) String() string { return shown(l.Raw) }

// At returns the value at a path of keys with dots between them, or nil.
func At(body Object, path string) any {
	var at any = body
	for key := range strings.SplitSeq(path, ".") {
		object, _ := at.(Object)
		at = object[key]
	}
	return at
}

// shown returns the beginning of a text on one line.
func shown(text []byte) string { return conformance.Abridge(text, 300) }

// A Setup is how a server is started.
type Setup struct {
	Env    map[string]string // beside the environment of the suite; an empty value takes a variable away
	Flags  []string          // after the words of the command
	Framed string            // the rule that each line is one JSON object
	Check  func(Line)        // judges each line as it is taken from the server; may be nil
}

// A Client is the one client of a server on standard input and output. Its methods must
// be called in the scenario's goroutine. A server that does not do what they expect broke
// the rule of the scenario.
type Client struct {
	p     *Play
	name  string
	setup Setup
	link  conformance.Link

	in     chan arrival       // filled by the reader, which ends with the link
	end    context.CancelFunc // of the reader
	reader chan struct{}      // closed when the reader has ended
	ended  error              // why no more lines come, once that was seen
}

// An arrival is one line, or the end of the output.
type arrival struct {
	text []byte
	err  error
}

const maxWaiting = 8192 // lines that a scenario may leave unread; then the server waits

// Start starts the target's command in p.Dir. It ends the scenario if that is not possible.
// The process ends with the scenario.
func (p *Play) Start(setup Setup) *Client {
	var link conformance.Link
	words, err := proc.SplitWords(strings.TrimPrefix(p.S.Config().Target, "stdio:"))
	if err == nil {
		words[0], err = program(words[0])
	}
	if err == nil {
		words = append(words, setup.Flags...)
		p.S.Record(p.nextName(), ">", fmt.Appendf(nil, "(start %s)", strings.Join(words, " ")))
		link, err = conformance.StartProcess(words, environ(setup.Env), p.Dir)
	}
	if err != nil {
		p.S.Fail(setup.Framed, "expected a server, got: %v", err)
	}
	return p.Join(link, setup)
}

func (p *Play) nextName() string { return fmt.Sprint("client", p.clients+1) }

// Join returns a client on a link, which it closes. Of the setup it needs what judges lines.
func (p *Play) Join(link conformance.Link, setup Setup) *Client {
	c := &Client{
		p: p, name: p.nextName(), setup: setup, link: link, in: make(chan arrival, maxWaiting), reader: make(chan struct{}),
	}
	p.clients++
	ctx, cancel := context.WithCancel(p.S.Context())
	c.end = cancel
	go c.read(ctx) // close waits for it
	p.S.AtEnd(c.close)
	return c
}

// program returns the absolute path of a command.
func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// environ returns our environment with changes.
func environ(changes map[string]string) []string {
	env := os.Environ()
	for name, value := range changes {
		env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (c *Client) read(ctx context.Context) {
	defer close(c.reader)
	for {
		text, err := c.link.Recv(ctx)
		a := arrival{text, err}
		if err != nil {
			text = []byte("(" + err.Error() + ")")
		}
		c.p.S.Record(c.name, "<", text)
		select {
		case c.in <- a:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *Client) close() {
	c.end()
	_ = c.link.Close() // it may have ended
	<-c.reader
	if text := strings.TrimSpace(c.link.Diagnostics()); text != "" {
		c.p.S.Record(c.name, "stderr", []byte(text))
	}
}

// Close ends the server at once, before the scenario ends.
func (c *Client) Close() { _ = c.link.Close() }

// Send sends values, each as a line of JSON.
func (c *Client) Send(values ...any) {
	for _, v := range values {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // values of scenarios can be encoded
		}
		c.Text(string(text) + "\n")
	}
}

// Text sends text as it is. If the server has ended, the next wait for a line fails.
func (c *Client) Text(text string) {
	c.p.S.Record(c.name, ">", []byte(strings.TrimSuffix(text, "\n")))
	_ = c.link.SendRaw(c.p.S.Context(), []byte(text))
}

// EndInput ends the server's standard input.
func (c *Client) EndInput() {
	c.p.S.Record(c.name, ">", []byte("(end of input)"))
	_ = c.link.CloseInput() // the server may have ended
}

// next waits for a line. It reports false if none comes within d, or the output ended.
func (c *Client) next(d time.Duration) (l Line, ok bool) {
	if c.ended != nil {
		return l, false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case a := <-c.in:
		if c.ended = a.err; a.err == nil {
			return c.parse(a.text), true
		}
	case <-timer.C:
	case <-c.p.S.Context().Done():
	}
	return l, false
}

// parse judges what every line must be.
func (c *Client) parse(text []byte) Line {
	l := Line{Raw: text}
	if err := json.Unmarshal(text, &l.Body); err != nil || l.Body == nil || !utf8.Valid(text) {
		c.p.S.Fail(c.setup.Framed, "expected one JSON object on each line of standard output, got %q", shown(text))
	}
	if c.setup.Check != nil {
		c.setup.Check(l)
	}
	return l
}

// Next waits for the next line, whatever it is.
func (c *Client) Next(what string) Line {
	_, l := c.Until(what, func(Line) bool { return true })
	return l
}

// Until waits for the line that ok accepts. It returns the lines before it, too.
func (c *Client) Until(what string, ok func(Line) bool) (before []Line, l Line) {
	return c.UntilWithin(c.p.S.Config().Patience, what, ok)
}

// UntilWithin is Until with another time than the usual one.
func (c *Client) UntilWithin(d time.Duration, what string, ok func(Line) bool) (before []Line, l Line) {
	all, found := c.Try(d, ok)
	last := "nothing"
	if n := len(all); n > 0 {
		if before, l = all[:n-1], all[n-1]; found {
			return before, l
		}
		last = l.String()
	}
	if c.ended != nil {
		c.p.Fail("expected %s, but the output ended (%v); the last line before was: %s; standard error: %s",
			what, c.ended, last, cmp.Or(shown([]byte(strings.TrimSpace(c.link.Diagnostics()))), "nothing"))
	}
	c.p.Fail("expected %s within %s; the last line was: %s", what, d, last)
	return nil, l
}

// Try is Until that reports whether the line came.
func (c *Client) Try(d time.Duration, ok func(Line) bool) (lines []Line, found bool) {
	for until := time.Now().Add(d); ; {
		l, came := c.next(time.Until(until))
		if !came {
			return lines, false
		}
		if lines = append(lines, l); ok(l) {
			return lines, true
		}
	}
}

// During returns the lines that come within a time.
func (c *Client) During(d time.Duration) []Line {
	lines, _ := c.Try(d, func(Line) bool { return false })
	return lines
}

// Exit waits for the process to end. It returns the lines that came before the end and
// the exit status.
func (c *Client) Exit(d time.Duration) ([]Line, int) {
	began := time.Now()
	lines := c.During(d)
	ctx, cancel := context.WithTimeout(c.p.S.Context(), max(d-time.Since(began), time.Millisecond))
	defer cancel()
	status, err := c.link.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		c.p.Fail("expected the process to end within %s", d)
	}
	c.p.S.Record(c.name, "<", fmt.Appendf(nil, "(exit status %d)", status))
	return lines, status
}

// Diagnostics returns the end of what the server wrote to standard error.
func (c *Client) Diagnostics() string { return c.link.Diagnostics() }

// Alive reports whether there is a process with the id in a file. It waits for the file
// as long as d.
func Alive(path string, d time.Duration) (alive, known bool) {
	for until := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(path) // it may not be there yet
		var pid int
		if n, _ := fmt.Sscan(string(text), &pid); n == 1 && bytes.HasSuffix(text, []byte("\n")) {
			return running(pid), true
		}
		if time.Now().After(until) {
			return false, false
		}
	}
}

// running reports whether a process runs. One that ended and was not waited for does not.
func running(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil || p.Signal(syscall.Signal(0)) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err != nil || !strings.HasPrefix(rest, "Z")
}

// Ended returns why the output ended: io.EOF after a whole line. It is nil if the client
// has not read the end.
func (c *Client) Ended() error { return c.ended }

// CheckTarget is the check of suites whose servers speak on standard input and output.
func CheckTarget(_ context.Context, c *conformance.Config, _ []conformance.Scenario) error {
	command, ok := strings.CutPrefix(c.Target, "stdio:")
	words, err := proc.SplitWords(command)
	if err == nil {
		_, err = program(words[0])
	}
	if !ok {
		err = errors.New("the protocol is spoken on standard input and output")
	}
	if err != nil {
		return fmt.Errorf("%w: %q is not stdio:COMMAND (%w)", conformance.ErrTarget, c.Target, err)
	}
	return nil
}

// Environ returns what a server is started with: the address of the model, with a path, in
// the variable that the run names or else in variable, keys for the model, and folders in
// p.Home. So a server finds no settings of the user and changes none.
func (p *Play) Environ(variable, path string) map[string]string {
	variable = cmp.Or(p.S.Config().ModelEnv, variable)
	env := map[string]string{variable: p.Model.URL + path, "HOME": p.Home}
	for _, name := range []string{strings.TrimSuffix(variable, "_BASE_URL"), "OPENAI", "OPENROUTER"} {
		env[name+"_API_KEY"] = "conformance"
	}
	folders := map[string]string{"XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_DATA_HOME": "data",
		"XDG_CACHE_HOME": "cache", "CHORD_CONFIG_HOME": "chord"}
	for name, folder := range folders {
		env[name] = filepath.Join(p.Home, folder)
		if err := os.MkdirAll(env[name], 0o700); err != nil {
			p.S.Skip("the suite cannot make a home for the server: %v", err)
		}
	}
	return env
}
