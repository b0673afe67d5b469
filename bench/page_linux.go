package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	nameOwnPage   = "maestro's page"
	nameNaivePage = "a naive page"
)

const (
	scrollSpeed  = 4000            // pixels a second, as a reader looks for a place
	streamPiece  = 6               // bytes of a chunk
	pagePatience = 3 * time.Minute // for one result of the browser
)

// A browsed is how one page did in the browser. Times are in milliseconds.
type browsed struct {
	paint   float64 // until the first content is painted
	opened  float64 // until the last page of the history is drawn
	history motion  // while it is scrolled
	stream  motion  // while answers come
	behind  float64 // from the end of the last answer until it is drawn
}

// A motion is what a page was like for some time.
type motion struct {
	P95      float64 // of the frames
	Worst    float64
	Elements float64 // the most
	Long     float64 // share of the time that tasks of more than 50 ms take
	End      float64 // milliseconds since 1970
	Ended    bool    // what was waited for was drawn
}

func (b browsed) String() string {
	return fmt.Sprintf("first paint %.0f ms, last page %.0f ms, scrolling p95 %.1f ms, streaming p95 %.1f ms, %.1f %% in long tasks, %.0f ms behind, %.0f elements",
		b.paint, b.opened, b.history.P95, b.stream.P95, 100*b.stream.Long, b.behind, b.elements())
}

// elements is the most that the document had.
func (b browsed) elements() float64 { return max(b.history.Elements, b.stream.Elements) }

// page measures what a person at a browser sees: a long session that opens and is
// scrolled, and a long answer that streams in.
func (t *trial) page() {
	p := t.plan.page
	res := rounds(t, []contender{{name: nameOwnPage, program: "maestro"}, {name: nameNaivePage, program: "maestro"}}, (*trial).browse)
	scrolling, streaming := fmt.Sprintf("scrolling through %d events", p.events), fmt.Sprintf("%d chunks come at %d/s", p.answers*p.chunks, p.rate)
	t.report.show(res.table("The page in a browser", fmt.Sprintf(
		"Headless Chromium without a graphics processor, 1280x800 pixels, each page in a new profile. A session of %d events, which are "+
			"turns of markdown, thinking and tool calls, is opened %d times, and scrolled upwards and back at %d pixels a second. Times of opening are "+
			"from the navigation until it is drawn, medians in each repetition. Then %d answers of %d chunks of %d bytes, in markdown, come at %d a second "+
			"into a new session. The naive page keeps everything in the document. It renders each stored message once, and in an answer the whole message "+
			"for each chunk, with marked and innerHTML, without a sanitizer. It is served by the bench and reads the same server over HTTP and SSE. "+
			"Frames are measured with requestAnimationFrame, long tasks (over 50 ms) with PerformanceObserver. Behind is the time from the end of "+
			"the last answer at another client until the page has drawn it.", p.events, p.opens, scrollSpeed, p.answers, p.chunks, streamPiece, p.rate),
		"page",
		res.each("first paint ms", spread, firstPaint),
		res.each("last page ms", spread, lastPage),
		res.each("scrolling: frames p95 ms", spread, scrollP95),
		res.each("worst", spread, func(b browsed) float64 { return b.history.Worst }),
		res.each("streaming: frames p95 ms", spread, streamP95),
		res.each("long tasks %", spread, longShare),
		res.each("behind ms", spread, func(b browsed) float64 { return b.behind }),
		res.each("elements", spread, browsed.elements)))
	ours := func(figure func(browsed) float64) series { return res.of(nameOwnPage, figure) }
	versus := func(figure func(browsed) float64) series { return ours(figure).over(res.of(nameNaivePage, figure)) }
	void, either := res.void(nameOwnPage), cmp.Or(res.void(nameOwnPage), res.void(nameNaivePage))
	t.report.judge(
		target{what: "page: first paint", limit: 500, unit: "ms", versus: "(abs)", got: ours(firstPaint), void: void},
		target{what: fmt.Sprintf("page: a session of %d events opens to its last page", p.events), limit: 1000, unit: "ms", versus: "(abs)", got: ours(lastPage), void: void},
		target{what: "page: a long session opens", limit: 0.6, unit: "x", versus: nameNaivePage, got: versus(lastPage), void: either},
		target{what: "page: frames while " + scrolling + ", p95", limit: 32, unit: "ms", versus: "(abs)", got: ours(scrollP95), void: void},
		target{what: "page: long tasks while " + streaming, limit: 2, unit: "%", versus: "(abs)", got: ours(longShare), void: void},
		target{what: "page: frames while " + streaming + ", p95", limit: 1, unit: "x", versus: nameNaivePage, got: versus(streamP95), void: either},
		target{what: "page: elements in the document, the most", limit: 3000, unit: "elements", versus: "(abs)", got: ours(browsed.elements), void: void},
	)
}

func firstPaint(b browsed) float64 { return b.paint }
func lastPage(b browsed) float64   { return b.opened }
func scrollP95(b browsed) float64  { return b.history.P95 }
func streamP95(b browsed) float64  { return b.stream.P95 }
func longShare(b browsed) float64  { return 100 * b.stream.Long }

// browse opens a page with a long session, and then with one into which an answer
// comes.
func (t *trial) browse(c contender) (got browsed) {
	p, b := t.plan.page, t.browser(c.name)
	s, d := t.served(b)
	d.turns(s, p.events)
	var opened struct{ Paint, Drawn float64 }
	b.do(map[string]any{"op": "open", "url": b.address(s), "word": lastWord, "times": p.opens}, &opened)
	got.paint, got.opened = opened.Paint, opened.Drawn
	var up, down motion
	b.do(map[string]any{"op": "scroll", "speed": -scrollSpeed, "ms": p.scroll.Milliseconds()}, &up)
	b.do(map[string]any{"op": "scroll", "speed": scrollSpeed, "ms": p.scroll.Milliseconds() / 2}, &down)
	got.history = motion{P95: max(up.P95, down.P95), Worst: max(up.Worst, down.Worst), Elements: max(up.Elements, down.Elements)}

	s, d = t.served(b)
	b.do(map[string]any{"op": "follow", "url": b.address(s), "ready": b.ready}, &struct{}{})
	most := time.Duration(p.answers*p.chunks)*time.Second/time.Duration(p.rate) + pagePatience/2
	b.send(map[string]any{"op": "stream", "word": lastWord, "ms": most.Milliseconds()})
	for range p.answers - 1 {
		check(d.prompt("stream"))
	}
	check(d.prompt("stream the last"))
	ended := time.Now()
	b.read(&got.stream)
	if !got.stream.Ended {
		check(fmt.Errorf("the page did not show the end of the answers within %v", most))
	}
	got.behind = got.stream.End - float64(ended.UnixMilli())
	return got
}

// lastWord is at the end of every answer.
const lastWord = "lantern"

// served starts a server that b may read, with a driver.
func (t *trial) served(b *browser) (*server, driver) {
	dir := t.tempDir(t.bin)
	return t.serveDriven(dir, scriptIn(dir, pageScript(t.plan)), append([]string{"--allow-origin", b.origin}, unbounded...)...)
}

// scriptIn writes a script into a folder and returns the agent that follows it.
func scriptIn(dir string, script any) (agent string) {
	path := filepath.Join(dir, "script.json")
	check(os.WriteFile(path, must(json.Marshal(script)), 0o600))
	return "script:" + path
}

// turns makes a session of so many events, and at most those of a turn more.
func (d driver) turns(s *server, events int) {
	for made := uint64(0); made < uint64(events); {
		for range 1 + (uint64(events)-made)/(2*turnEvents) {
			check(d.prompt("Find out why the login test fails on Mondays, and repair what is wrong."))
		}
		text, _ := s.call(http.MethodGet, "sessions", "", nil)
		var list contracts.SessionList
		check(json.Unmarshal(text, &list))
		made = *list.Sessions[0].Cursor
	}
}

// turnEvents is about how many events one turn has.
const turnEvents = 500

type steps []map[string]any

// pageScript is turns of an agent that looks at files, and answers that stream in.
func pageScript(p plan) map[string]any {
	say := func(text string) map[string]any {
		return map[string]any{"say": map[string]any{"text": text, "chunk": streamPiece}}
	}
	repeat := func(times int, do ...map[string]any) map[string]any {
		return map[string]any{"repeat": map[string]any{"times": times, "steps": do}}
	}
	tool := func(name string, args map[string]any, output string) map[string]any {
		return map[string]any{"tool": map[string]any{"name": name, "args": args, "output": output}}
	}
	turn := steps{
		repeat(3,
			map[string]any{"think": map[string]any{"text": strings.Repeat("A date is involved, so I look at the clock. ", 3), "chunk": streamPiece}},
			say(pageText),
			tool("bash", map[string]any{"command": "go test ./login -run 'TestLogin|TestExpiry' -count=1"}, strings.Repeat("ok  \texample.com/login\t0.312s\n", 20)),
			tool("read", map[string]any{"path": "login/login_{{n}}.go"}, "package login\n"),
			tool("read", map[string]any{"path": "login/clock_{{n}}.go"}, "package login\n"),
			tool("edit", map[string]any{"path": "login/login.go", "old_string": "now := time.Now()\n", "new_string": "now := clock().UTC()\n"}, "1 file changed\n")),
		say("Both tests pass now. The word for this turn is " + lastWord + "."),
	}
	answer := streamSteps(p)
	last := append(slices.Clone(answer), say("The word is "+lastWord+"."))
	return map[string]any{"default": turn, "prompts": []any{
		map[string]any{"match": "stream the last", "steps": last},
		map[string]any{"match": "stream", "steps": answer},
	}}
}

// streamSteps is an answer of at least so many chunks, evenly at their rate: the delay of a
// chunk is a little too short, and the rate of the paragraphs makes up for it.
func streamSteps(p plan) steps {
	pieces := (len(pageText) + streamPiece - 1) / streamPiece
	delay := time.Second.Milliseconds() / int64(p.page.rate)
	return steps{
		{"repeat": map[string]any{
			"times": (p.page.chunks + pieces - 1) / pieces, "rate": float64(p.page.rate) / float64(pieces),
			"steps": steps{{"say": map[string]any{"text": pageText, "chunk": streamPiece, "delay_ms": delay}}},
		}},
	}
}

// pageText is a part of an answer: what agents write.
const pageText = "### Step {{n}}\n\nThe token is compared with **local time**, although it was issued in UTC. `login.go` " +
	"checks the expiry, `session.go` renews it, and the [test](https://example.com/login) builds one by hand, so all three have to change " +
	"together.\n\n1. take the time as an argument\n2. compare in *UTC* everywhere\n3. let the test choose the clock\n\n" +
	"```go\n// Valid reports whether the token has not expired at the time now.\nfunc (t Token) Valid(now time.Time) bool {\n" +
	"\treturn now.UTC().Before(t.Expires.UTC())\n}\n```\n\n| Test | Before | Now |\n|---|---|---|\n| TestLogin | failed | passes |\n| TestExpiry | passes | passes |\n\n"

// A browser is Chromium with one of the pages, in a process that takes orders.
type browser struct {
	*server
	origin string // of the naive page
	naive  bool
	ready  string // selector of what is there once the page follows a session
}

// browser starts Chromium. It fails with exec.ErrNotFound if the machine has none.
func (t *trial) browser(page string) *browser {
	node, chromium := must(exec.LookPath("node")), must(exec.LookPath("chromium"))
	files := http.NewServeMux()
	files.Handle("/marked/", http.StripPrefix("/marked/", http.FileServer(http.Dir(filepath.Join(t.root, "web/node_modules/marked/lib")))))
	files.Handle("/", http.FileServer(http.Dir(filepath.Join(t.root, "bench/page"))))
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	served := &http.Server{Handler: files}
	go func() { _ = served.Serve(l) }() // ends with Close
	t.atEnd(served.Close)
	b := &browser{origin: "http://" + l.Addr().String(), naive: page == nameNaivePage}
	scroller, texts := ".transcript", ".transcript .prose"
	b.ready = ".nothing"
	if b.naive {
		scroller, texts, b.ready = "#log", "#log > .text", "#log[data-follows]"
	}
	b.server = must(launch(t.ctx, node, filepath.Join(t.root, "bench/page/measure.mjs"), chromium, scroller, texts))
	t.atEnd(b.stop)
	return b
}

// address is that of the page with the session of a server.
func (b *browser) address(s *server) string {
	if b.naive {
		return b.origin + "/naive.html?session=" + url.QueryEscape(s.url("sessions/"+s.session))
	}
	return "http://" + s.addr + "/#session=" + s.session
}

// do gives an order and reads its result.
func (b *browser) do(order map[string]any, result any) {
	b.send(order)
	b.read(result)
}

func (b *browser) send(order map[string]any) { check(b.orders.Encode(order)) }

func (b *browser) read(result any) {
	hung := time.AfterFunc(pagePatience, b.kill)
	defer hung.Stop()
	if err := b.reports.Decode(result); err != nil {
		check(fmt.Errorf("wait for the browser: %w: %s", err, b.stderr))
	}
}
