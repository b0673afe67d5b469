package hub_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// reader is the caller of the requests for history.
var reader = contracts.Caller{Principal: contracts.Principal{ID: "reader", Role: contracts.RoleViewer}}

func historyOf(t *testing.T, h *hub.Hub, req contracts.HistoryRequest) *contracts.HistoryPage {
	t.Helper()
	page, err := h.History(t.Context(), &req, reader)
	if err != nil {
		t.Fatalf("history %+v: %v", req, err)
	}
	return page
}

// whole returns the members of all pages of a request, the oldest first, and how many
// pages there were.
func whole(t *testing.T, h *hub.Hub, req contracts.HistoryRequest) (all contracts.HistoryPage, pages int) {
	t.Helper()
	for {
		page := historyOf(t, h, req)
		all.Entries = append(page.Entries, all.Entries...)
		all.Turns = append(page.Turns, all.Turns...)
		all.Hits = append(page.Hits, all.Hits...)
		if pages++; page.Before == nil {
			return all, pages
		}
		if req.Before != 0 && *page.Before >= req.Before {
			t.Fatalf("got before %d of a page before %d", *page.Before, req.Before)
		}
		req.Before = *page.Before
	}
}

// eventIn decodes the event of an entry.
func eventIn(t *testing.T, e contracts.HistoryEntry) contracts.Event {
	t.Helper()
	ev, err := (&contracts.Decoder{}).Event(e.Message)
	if err != nil {
		t.Fatalf("entry %d: %v in %s", e.Cursor, err, e.Message)
	}
	return ev
}

// transcript returns the entries as lines, with adjacent texts joined.
func transcript(t *testing.T, entries []contracts.HistoryEntry) string {
	t.Helper()
	var lines []string
	last := ""
	for _, e := range entries {
		switch ev := eventIn(t, e).(type) {
		case *contracts.RawAgentEvent:
			text, ok := ev.UserMessage()
			if !ok {
				text = "raw " + ev.EventKind
			}
			lines, last = append(lines, "prompt "+text), ""
		case *contracts.PromptAccepted:
			lines, last = append(lines, "prompt "+ev.Content), ""
		case *contracts.ResponseChunk:
			if last == ev.ResponseID {
				lines[len(lines)-1] += ev.Content
			} else {
				lines, last = append(lines, ev.ResponseID+" "+ev.Content), ev.ResponseID
			}
		default:
			lines, last = append(lines, ev.EventType()), ""
		}
	}
	return strings.Join(lines, "\n")
}

// orator is an agent that answers each prompt with its words, each a chunk. A prompt
// that begins with fail fails afterwards, and one with wait ends by its interruption.
func orator() *player {
	return newPlayer(func(ctx context.Context, host contracts.Host, work contracts.Work) error {
		id := "answer to " + work.Content
		events := []contracts.Event{&contracts.ResponseStart{ResponseID: id}}
		for word := range strings.FieldsSeq(work.Content) {
			events = append(events, &contracts.ResponseChunk{ResponseID: id, Content: word + ", "})
		}
		for _, ev := range events {
			if err := host.Publish(ctx, ev); err != nil {
				return err
			}
		}
		time.Sleep(2 * time.Second)
		switch {
		case strings.HasPrefix(work.Content, "fail"):
			return errors.New("as told")
		case strings.HasPrefix(work.Content, "wait"):
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	})
}

// A historyTest gets a session, and what sends commands of its controller.
type historyTest func(t *testing.T, r *room, send func(string) error)

// withOrator runs a test with a session that has had the prompts.
func withOrator(t *testing.T, opts hub.Options, prompts []string, test historyTest) {
	t.Helper()
	if opts.Store == nil {
		opts.Store = journal.NewMemory(journal.MemoryOptions{})
	}
	synctest.Test(t, func(t *testing.T) {
		opts.Agent = orator()
		r := openRoom(t, opts)
		defer func() { _ = r.Close(context.Background()) }()
		send := drive(t, r.Hub)
		for _, prompt := range prompts {
			say(t, send, prompt)
		}
		test(t, r, send)
	})
}

// withOldAndNew is withOrator, and then the same with a session of a version without
// prompt_accepted.
func withOldAndNew(t *testing.T, prompts []string, test historyTest) {
	t.Run("new", func(t *testing.T) { withOrator(t, hub.Options{}, prompts, test) })
	t.Run("old", func(t *testing.T) {
		withOrator(t, hub.Options{Store: peopleless{journal.NewMemory(journal.MemoryOptions{})}}, prompts, test)
	})
}

// peopleless stores no prompt_accepted.
type peopleless struct{ journal.Store }

func (s peopleless) Append(entries []journal.Entry) error {
	entries = slices.Clone(entries)
	for i, e := range entries {
		if p := e.Parts(); typeOf(p.Inner) == "prompt_accepted" {
			entries[i] = journal.Entry{Cursor: e.Cursor, Time: e.Time, Kind: journal.Note, Body: p.Hidden}
		}
	}
	return s.Store.Append(entries)
}

// promptType replaces the types of events that have a prompt.
var promptType = strings.NewReplacer("message_start", "prompt", "prompt_accepted", "prompt")

// say sends a prompt and waits for the end of its run.
func say(t *testing.T, send func(string) error, prompt string) {
	t.Helper()
	if err := send(fmt.Sprintf(`{"type":"prompt","content":%q}`, prompt)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
}

func TestPagesOfAnySizeGiveTheSameHistory(t *testing.T) {
	prompts := []string{"one two three", "four", "fail five six", strings.Repeat("seven ", 300), "eight"}
	withOldAndNew(t, prompts, func(t *testing.T, r *room, _ func(string) error) {
		all, pages := whole(t, r.Hub, contracts.HistoryRequest{Limit: 1000})
		want := transcript(t, all.Entries)
		for _, prompt := range prompts {
			answer := strings.Join(strings.Fields(prompt), ", ") + ", "
			if !strings.Contains(want, "prompt "+prompt) || !strings.Contains(want, answer) {
				t.Errorf("got %s, want the prompt %q and its answer", want, prompt)
			}
		}
		if pages != 1 || strings.Contains(want, "agent_end") || historyOf(t, r.Hub, contracts.HistoryRequest{}).Gap {
			t.Errorf("got %d pages, %s; want one page without raw events and gap", pages, want)
		}
		for _, req := range []contracts.HistoryRequest{
			{Limit: 1}, {Limit: 2}, {Limit: 7}, {Bytes: 1}, {Bytes: 500}, {Turns: 1}, {Turns: 2},
		} {
			some, pages := whole(t, r.Hub, req)
			if got := transcript(t, some.Entries); got != want || pages < 3 {
				t.Errorf("%+v: got in %d pages\n%s\nwant\n%s", req, pages, got, want)
			}
			byCursor := func(a, b contracts.HistoryEntry) int { return cmp.Compare(a.Cursor, b.Cursor) }
			if !slices.IsSortedFunc(some.Entries, byCursor) {
				t.Errorf("%+v: got entries that are not in order", req)
			}
		}
	})
}

func TestTurnsBeginAtTheirPrompt(t *testing.T) {
	withOldAndNew(t, []string{"one", "two", "three"}, func(t *testing.T, r *room, _ func(string) error) {
		page := historyOf(t, r.Hub, contracts.HistoryRequest{Turns: 2})
		got := transcript(t, page.Entries)
		if !strings.HasPrefix(got, "prompt two\n") || !strings.Contains(got, "prompt three") {
			t.Errorf("got %s, want what begins with the prompt two", got)
		}
		if page.Cut || page.Before == nil {
			t.Errorf("got cut %t, before %v; want a page before one that is not cut", page.Cut, page.Before)
		}
		if page = historyOf(t, r.Hub, contracts.HistoryRequest{Turns: 2, Limit: 3}); !page.Cut || len(page.Entries) != 3 {
			t.Errorf("got %d entries, cut %t; want 3 that do not reach the prompt", len(page.Entries), page.Cut)
		}
		if page = historyOf(t, r.Hub, contracts.HistoryRequest{Turns: 9}); page.Cut || page.Before != nil {
			t.Errorf("got a page that is cut (%t) before %v, want the whole history", page.Cut, page.Before)
		}
	})
}

func TestLongOutputIsShortenedUntilItIsOpened(t *testing.T) {
	withPuppet(t, hub.Options{}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		send := drive(t, h)
		if err := send(`{"type":"prompt","content":"run"}`); err != nil {
			t.Fatal(err)
		}
		var whole strings.Builder
		agent.orders <- func(ctx context.Context) (bool, error) {
			_ = agent.host.Publish(ctx, &contracts.ToolCall{CallID: "c", Tool: "bash", Args: []byte(`{}`)})
			for i := range 2000 {
				line := fmt.Sprintf("line %d \"ü\"\n", i)
				whole.WriteString(line)
				_ = agent.host.Publish(ctx, &contracts.ToolOutput{CallID: "c", Content: line})
			}
			return false, agent.host.Publish(ctx, &contracts.ToolEnd{CallID: "c", Success: true})
		}
		agent.orders <- end(nil)
		synctest.Wait()
		outputs := func(req contracts.HistoryRequest) (content string, entries []contracts.HistoryEntry) {
			for _, e := range historyOf(t, h, req).Entries {
				if out, ok := eventIn(t, e).(*contracts.ToolOutput); ok {
					content, entries = content+out.Content, append(entries, e)
				}
			}
			return content, entries
		}
		short, entries := outputs(contracts.HistoryRequest{})
		if len(entries) != 1 || !strings.HasPrefix(whole.String(), short) || len(short) > 8<<10 {
			t.Fatalf("got %d entries with %d bytes, want one with the beginning", len(entries), len(short))
		}
		if got, want := int(entries[0].Omitted), whole.Len()-len(short); got != want {
			t.Errorf("omitted: got %d, want %d", got, want)
		}
		opened, entries := outputs(contracts.HistoryRequest{Before: entries[0].Cursor + 1, Limit: 1, Full: true})
		if opened != whole.String() || entries[0].Omitted != 0 {
			t.Errorf("got %d bytes, want the %d of the whole output", len(opened), whole.Len())
		}
	})
}

func TestLongPromptIsWholeWhereItIsOpened(t *testing.T) {
	withPuppet(t, hub.Options{}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		send := drive(t, h)
		content := strings.Repeat("wick ", contracts.MaxPromptBytes/5) + "and the Lantern"
		if err := send(`{"type":"prompt","content":"` + content + `"}`); err != nil {
			t.Fatal(err)
		}
		agent.orders <- end(nil)
		synctest.Wait()
		prompt := func(req contracts.HistoryRequest) *contracts.PromptAccepted {
			for _, e := range historyOf(t, h, req).Entries {
				if ev, ok := eventIn(t, e).(*contracts.PromptAccepted); ok {
					return ev
				}
			}
			t.Fatalf("%+v has no prompt", req)
			return nil
		}
		if p := prompt(contracts.HistoryRequest{}); len(p.Content) > contracts.MaxPromptBytes || !p.Truncated {
			t.Errorf("got %d bytes, truncated %t, want the beginning", len(p.Content), p.Truncated)
		}
		hits := historyOf(t, h, contracts.HistoryRequest{Kind: contracts.HistorySearch, Query: "lantern"}).Hits
		if len(hits) != 1 || hits[0].Of != "prompt_accepted" {
			t.Fatalf("got %+v, want the prompt", hits)
		}
		if p := prompt(contracts.HistoryRequest{Before: hits[0].Cursor + 1, Limit: 1, Full: true}); p.Content != content || p.Truncated {
			t.Errorf("got %d bytes, truncated %t, want the whole prompt", len(p.Content), p.Truncated)
		}
	})
}

func TestIndexTellsHowTurnsEnded(t *testing.T) {
	long := "long " + strings.Repeat("x", 300) + "\nsecond line"
	withOldAndNew(t, []string{"one", "fail two", long}, func(t *testing.T, r *room, send func(string) error) {
		say(t, send, "wait")
		if err := send(`{"type":"interrupt"}`); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := send(`{"type":"prompt","content":"wait for it"}`); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got, _ := whole(t, r.Hub, contracts.HistoryRequest{Kind: contracts.HistoryTurns})
		want := []struct {
			line, outcome string
			took          time.Duration
		}{
			{"one", "completed", 2 * time.Second}, {"fail two", "failed", 2 * time.Second},
			{long[:200] + "…", "completed", 2 * time.Second}, {"wait", "cancelled", 3 * time.Second},
			{"wait for it", "running", -1},
		}
		if len(got.Turns) != len(want) {
			t.Fatalf("got %d turns, want %d", len(got.Turns), len(want))
		}
		for i, turn := range got.Turns {
			took := time.Duration(-1)
			if turn.DurationMS != nil {
				took = time.Duration(*turn.DurationMS) * time.Millisecond
			}
			old := strings.HasSuffix(t.Name(), "/old")
			if old != (turn.Author == nil) || !old && turn.Author.Principal != "p" {
				t.Errorf("turn %d: got author %+v", i, turn.Author)
			}
			if turn.Line != want[i].line || string(turn.Outcome) != want[i].outcome || took != want[i].took {
				t.Errorf("turn %d: got %q, %s after %s; want %v", i, turn.Line, turn.Outcome, took, want[i])
			}
			page := historyOf(t, r.Hub, contracts.HistoryRequest{Before: turn.Cursor + 1, Limit: 1})
			if text := transcript(t, page.Entries); !strings.HasPrefix(text, "prompt "+turn.Line[:3]) {
				t.Errorf("turn %d: got %s at its cursor, want its prompt", i, text)
			}
		}
		one, pages := whole(t, r.Hub, contracts.HistoryRequest{Kind: contracts.HistoryTurns, Limit: 1})
		if fmt.Sprint(lines(one.Turns)) != fmt.Sprint(lines(got.Turns)) || pages < len(want) {
			t.Errorf("one by one: got %q in %d pages, want %q", lines(one.Turns), pages, lines(got.Turns))
		}
		middle := historyOf(t, r.Hub, contracts.HistoryRequest{Kind: contracts.HistoryTurns, Before: got.Turns[1].Cursor + 1})
		if fmt.Sprint(lines(middle.Turns)) != "[one completed]" {
			t.Errorf("before the end of a turn: got %v, want those that have ended", lines(middle.Turns))
		}
	})
}

func TestIndexTellsWhereRunsAskedAndEnded(t *testing.T) {
	const asked = contracts.MaxTurnQuestions + 2
	synctest.Test(t, func(t *testing.T) {
		agent := newPlayer(func(ctx context.Context, host contracts.Host, work contracts.Work) error {
			for i := range asked {
				req := question(contracts.RequestUserInput, fmt.Sprint("q", i))
				if _, err := host.Ask(ctx, req, contracts.AskOptions{Timeout: time.Second}); err != nil {
					return err
				}
			}
			return nil
		})
		r := openRoom(t, hub.Options{Agent: agent})
		defer func() { _ = r.Close(context.Background()) }()
		send := drive(t, r.Hub)
		if err := errors.Join(
			send(`{"type":"hello","capabilities":{"server_requests":["user_input"]}}`), send(`{"type":"prompt","content":"go"}`),
		); err != nil {
			t.Fatal(err)
		}
		time.Sleep((asked + 1) * time.Second)
		got := historyOf(t, r.Hub, contracts.HistoryRequest{Kind: contracts.HistoryTurns}).Turns
		if len(got) != 1 || len(got[0].Questions) != contracts.MaxTurnQuestions || !slices.IsSorted(got[0].Questions) {
			t.Fatalf("got %+v, want a turn with the last %d questions", got, contracts.MaxTurnQuestions)
		}
		page := historyOf(t, r.Hub, contracts.HistoryRequest{Before: got[0].Questions[0] + 1, Limit: 1})
		if text := transcript(t, page.Entries); text != "server_request" {
			t.Errorf("got %s at the first cursor, want a question", text)
		}
		if last := got[0].Questions[contracts.MaxTurnQuestions-1]; got[0].End <= last || got[0].End > r.Snapshot().Cursor {
			t.Errorf("got the end of the run at %d, want it after the last question at %d", got[0].End, last)
		}
	})
}

func TestPiecesOfATextAreEntriesOfTheirOwn(t *testing.T) {
	withOrator(t, hub.Options{}, []string{"one two three"}, func(t *testing.T, r *room, _ func(string) error) {
		joined, _ := whole(t, r.Hub, contracts.HistoryRequest{Limit: 1})
		apart, _ := whole(t, r.Hub, contracts.HistoryRequest{Limit: 1, Pieces: true})
		if len(apart.Entries) != len(joined.Entries)+2 || transcript(t, apart.Entries) != transcript(t, joined.Entries) {
			t.Errorf("got %d entries apart and %d joined, want three words apart, and the same text", len(apart.Entries), len(joined.Entries))
		}
	})
}

// A prompt of the queue is one turn and one entry, and has its author. A prompt that
// steers a run ends as the run does.
func TestIndexListsPromptsOfTheQueueOnce(t *testing.T) {
	inWorkshop(t, func(t *testing.T, r *room, w *worker, ann *memconn.Peer) {
		for i, content := range []string{"one", "two", "three"} {
			r.send(ann, fmt.Sprintf(`{"type":"prompt","content":%q,"when":"next"}`, content))
			for _, word := range []string{"left", "right"} {
				if i == 0 {
					r.send(ann, fmt.Sprintf(`{"type":"prompt","content":%q,"when":"steer"}`, word))
				}
			}
		}
		check := func(want ...string) {
			t.Helper()
			for _, limit := range []int64{100, 3, 2, 1} {
				req := contracts.HistoryRequest{Kind: contracts.HistoryTurns, Limit: limit}
				got, _ := whole(t, r.Hub, req)
				if !slices.Equal(lines(got.Turns), want) {
					t.Errorf("limit %d: got %q, want %q", limit, lines(got.Turns), want)
				}
				for _, turn := range got.Turns {
					if turn.Author == nil || turn.Author.Principal != "user_ann" {
						t.Errorf("%s: got author %+v", turn.Line, turn.Author)
					}
				}
			}
		}
		w.runs(t, "one")
		if taken := w.host.Steering(t.Context()); len(taken) != 2 {
			t.Fatalf("got %v, want two prompts", taken)
		}
		check("one running", "left running", "right running")
		for _, next := range []string{"two", "three"} {
			time.Sleep(time.Second)
			w.finish(t, nil)
			w.runs(t, next)
		}
		w.finish(t, nil)
		w.rests(t)
		check("one completed", "left completed", "right completed", "two completed", "three completed")
		page := historyOf(t, r.Hub, contracts.HistoryRequest{Limit: 1000})
		if text := transcript(t, page.Entries); strings.Count(text, "prompt ") != 5 {
			t.Errorf("got %s, want five prompts", text)
		}
	})
}

func TestIndexContinuesBeforeItsOldestTurn(t *testing.T) {
	prompts := []string{"one", "two", "three", "four", "five", "six", "seven"}
	withOldAndNew(t, prompts, func(t *testing.T, r *room, _ func(string) error) {
		for limit := range int64(len(prompts)) {
			got, pages := whole(t, r.Hub, contracts.HistoryRequest{Kind: contracts.HistoryTurns, Limit: limit + 1})
			if len(got.Turns) != len(prompts) || pages > len(prompts)/int(limit+1)+1 {
				t.Errorf("limit %d: got %q in %d pages", limit+1, lines(got.Turns), pages)
			}
		}
	})
}

// lines returns turns in short.
func lines(turns []contracts.HistoryTurn) (all []string) {
	for _, turn := range turns {
		all = append(all, turn.Line+" "+string(turn.Outcome))
	}
	return all
}

func TestSearchFindsTextAcrossPieces(t *testing.T) {
	prompts := []string{"the Lantern is lit", "nothing", "Grüße an \"alle\""}
	withOldAndNew(t, prompts, func(t *testing.T, r *room, _ func(string) error) {
		turns := historyOf(t, r.Hub, contracts.HistoryRequest{Kind: contracts.HistoryTurns}).Turns
		find := func(query string) (hits []string) {
			for _, limit := range []int64{100, 1} {
				req := contracts.HistoryRequest{Kind: contracts.HistorySearch, Query: query, Limit: limit}
				all, _ := whole(t, r.Hub, req)
				var these []string
				for _, hit := range all.Hits {
					turn := slices.IndexFunc(turns, func(turn contracts.HistoryTurn) bool {
						return hit.Turn != nil && *hit.Turn == turn.Cursor
					})
					these = append(these, fmt.Sprintf("%d %s %s", turn, promptType.Replace(hit.Of), hit.Excerpt))
				}
				if hits != nil && !slices.Equal(hits, these) {
					t.Errorf("%s one by one: got %q, want %q", query, these, hits)
				}
				hits = these
			}
			return hits
		}
		for query, want := range map[string][]string{
			"LANTERN":  {"0 prompt the Lantern is lit", "0 response_chunk the, Lantern, is, lit,"},
			"rn, is":   {"0 response_chunk the, Lantern, is, lit,"},
			"grÜSSE":   nil,
			"GRÜẞE":    {`2 prompt Grüße an "alle"`, `2 response_chunk Grüße, an, "alle",`},
			`"alle"`:   {`2 prompt Grüße an "alle"`, `2 response_chunk Grüße, an, "alle",`},
			"response": nil, // is in the names of events only
		} {
			if got := find(query); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", query, got, want)
			}
		}
	})
}

func TestHistoryIsForThoseWhoMayWatch(t *testing.T) {
	withOrator(t, hub.Options{}, []string{"one"}, func(t *testing.T, r *room, _ func(string) error) {
		type request = contracts.HistoryRequest
		search, long := contracts.HistorySearch, strings.Repeat("q", 257)
		expired := contracts.Principal{ID: "p", Expires: time.Now()}
		stranger := contracts.Caller{Principal: contracts.Principal{ID: "p"}, ConnectionID: "conn_x"}
		for what, tt := range map[string]struct {
			req  request
			by   contracts.Caller
			code contracts.Code
		}{
			"expired":            {request{}, contracts.Caller{Principal: expired}, contracts.CodeUnauthenticated},
			"foreign connection": {request{}, stranger, contracts.CodeStaleConnection},
			"limit":              {request{Limit: 1001}, reader, contracts.CodeBadRequest},
			"negative":           {request{Bytes: -1}, reader, contracts.CodeBadRequest},
			"turns":              {request{Turns: 101}, reader, contracts.CodeBadRequest},
			"no query":           {request{Kind: search}, reader, contracts.CodeBadRequest},
			"long query":         {request{Kind: search, Query: long}, reader, contracts.CodeBadRequest},
			"needless query":     {request{Query: "q"}, reader, contracts.CodeBadRequest},
		} {
			page, err := r.History(t.Context(), &tt.req, tt.by)
			if page != nil || !errors.Is(err, &contracts.Error{Code: tt.code}) {
				t.Errorf("%s: got %v, %v; want %s", what, page, err, tt.code)
			}
		}
	})
}

func TestSocketReadsHistory(t *testing.T) {
	withOrator(t, hub.Options{}, []string{"one"}, func(t *testing.T, r *room, _ func(string) error) {
		viewer := r.join(contracts.RoleViewer, "", nil)
		r.until(viewer, `"hello_ok"`)
		r.send(viewer, `{"type":"ws.history","id":"h1"}`)
		f, ok := r.last(r.until(viewer, `"history"`)).(*contracts.HistoryEnvelope)
		if !ok || f.ID != "h1" || f.Page.Epoch != r.Epoch() || !strings.Contains(transcript(t, f.Page.Entries), "prompt one") {
			t.Errorf("got %+v, want the history for h1", f)
		}
		r.send(viewer, `{"type":"ws.history","id":"h2","limit":5000}`)
		r.until(viewer, `"ws.error","id":"h2","seq":3,"error":"limit must be 1 to 1000","code":"bad_request"`)
		r.send(viewer, `{"type":"ws.history","id":"h3","kind":"turns"}`)
		r.until(viewer, `"turns":[{`)

		raw := r.join(contracts.RoleController, contracts.TakeoverLater, nil)
		r.until(raw, `"hello_ok"`)
		r.send(raw, `{"type":"hello","capabilities":{"raw_agent_events":true},"opt_out_notifications":["status"]}`)
		r.until(raw, `"hello_ok"`)
		r.send(raw, `{"type":"ws.history","id":"h4"}`)
		if got := r.until(raw, `"history"`); !strings.Contains(got, "agent_end") {
			t.Errorf("got %s, want the raw events that the client negotiated", got)
		}
	})
}

func TestUnreadPagesAreBounded(t *testing.T) {
	opts := hub.Options{MaxPrivateBytes: 40 << 10, HeartbeatInterval: time.Hour}
	withOrator(t, opts, []string{strings.Repeat("word ", 5000)}, func(t *testing.T, r *room, _ func(string) error) {
		viewer := r.join(contracts.RoleViewer, "", nil)
		r.until(viewer, `"hello_ok"`)
		r.send(viewer, `{"type":"ws.history","id":"h1"}`)
		if f, ok := r.last(r.until(viewer, `"h1"`)).(*contracts.Refusal); !ok || f.Code != contracts.CodeOverloaded {
			t.Errorf("got %+v, want overloaded", f)
		}
		r.send(viewer, `{"type":"ws.history","id":"h2","limit":1}`)
		r.until(viewer, `"history","id":"h2"`)
	})
}

func TestAttachingWithTurnsStartsWithTheirHistory(t *testing.T) {
	withOrator(t, hub.Options{}, []string{"one", "two", "three"}, func(t *testing.T, r *room, send func(string) error) {
		viewer, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer, Turns: 2})
		first := r.until(viewer, `"hello_ok"`)
		snapshot, page := strings.Index(first, `{"type":"snapshot"`), strings.Index(first, `{"type":"history","page"`)
		if snapshot < 0 || page < snapshot || strings.Index(first, `"hello_ok"`) < page ||
			strings.Contains(first, `"one"`) || !strings.Contains(first, `"content":"two"`) {
			t.Errorf("got %s, want the state, the history from two on, and hello_ok", first)
		}
		say(t, send, "four")
		live := r.until(viewer, `"response_end"`)
		if strings.Contains(live, `"history"`) || !strings.Contains(live, `four, `) {
			t.Errorf("got %s, want what is new", live)
		}
		g := r.guest("p")
		stream := g.follows(contracts.StreamRequest{Turns: 1})
		first = r.until(stream, `"history"`)
		if !strings.Contains(first, `{"type":"snapshot"`) || !strings.Contains(first, `"content":"four"`) || strings.Contains(first, "three") {
			t.Errorf("got %s, want the state and the history from four on", first)
		}
		cursor := int64(r.Cursor())
		again, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer, Cursor: &cursor, Epoch: r.Epoch(), Turns: 2})
		if first = r.until(again, `"hello_ok"`); strings.Contains(first, `"history"`) {
			t.Errorf("got %s, want no history for a client that has it", first)
		}
	})
}

func TestRemovedHistoryIsAGap(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{RetainBytes: 64 << 10})
	prompts := []string{strings.Repeat("word ", 400), strings.Repeat("more ", 400)}
	withOrator(t, hub.Options{Store: store}, prompts, func(t *testing.T, r *room, _ func(string) error) {
		req := contracts.HistoryRequest{}
		page := historyOf(t, r.Hub, req)
		for page.Before != nil {
			if page.Gap {
				t.Errorf("got a gap before %d, want it at the end only", *page.Before)
			}
			req.Before = *page.Before
			page = historyOf(t, r.Hub, req)
		}
		if !page.Gap {
			t.Error("got no gap at the beginning of what is stored")
		}
	})
}

func TestHistoryGoesOnBeforeLostEntries(t *testing.T) {
	dir := t.TempDir()
	run := func(prompt string, test func(t *testing.T, r *room)) {
		opts := hub.Options{Store: openFile(t, dir, journal.FileOptions{}), NoReturn: true}
		withOrator(t, opts, []string{prompt}, func(t *testing.T, r *room, _ func(string) error) { test(t, r) })
	}
	run("before", func(*testing.T, *room) {})
	dir = crash(t, dir)
	run("after", func(t *testing.T, r *room) {
		page := historyOf(t, r.Hub, contracts.HistoryRequest{})
		text := transcript(t, page.Entries)
		if !page.Gap || page.Before == nil || strings.Contains(text, "prompt before") || !strings.Contains(text, "prompt after") {
			t.Fatalf("got %s, gap %t; want the new epoch, and that entries are lost", text, page.Gap)
		}
		page = historyOf(t, r.Hub, contracts.HistoryRequest{Before: *page.Before})
		if text = transcript(t, page.Entries); page.Gap || !strings.Contains(text, "prompt before") {
			t.Errorf("got %s, gap %t; want the old epoch", text, page.Gap)
		}
	})
}

func TestTurnThatACrashCutIsListedOnce(t *testing.T) {
	dir := t.TempDir()
	open := func() hub.Options {
		return hub.Options{Store: openFile(t, dir, journal.FileOptions{}), NoReturn: true}
	}
	outer, image := t, "" // the image outlives the inner test
	withOrator(t, open(), []string{"before", "wait"}, func(*testing.T, *room, func(string) error) {
		image = crash(outer, dir)
	})
	dir = image
	withOrator(t, open(), []string{"after"}, func(t *testing.T, r *room, _ func(string) error) {
		for _, limit := range []int64{100, 1} {
			got, _ := whole(t, r.Hub, contracts.HistoryRequest{Kind: contracts.HistoryTurns, Limit: limit})
			if want := "[before completed wait failed after completed]"; fmt.Sprint(lines(got.Turns)) != want {
				t.Errorf("limit %d: got %v, want %s", limit, lines(got.Turns), want)
			}
		}
		found, _ := whole(t, r.Hub, contracts.HistoryRequest{Kind: contracts.HistorySearch, Query: "before"})
		if len(found.Hits) == 0 {
			t.Error("got no hit in the earlier epoch")
		}
	})
}

// A slowStore blocks reads until they are released.
type slowStore struct {
	journal.Store
	slow    atomic.Bool
	release chan struct{}
	reading atomic.Int32
}

func (s *slowStore) Read(after uint64, fn func(journal.Entry) bool) error {
	if s.slow.Load() {
		s.reading.Add(1)
		<-s.release
	}
	return s.Store.Read(after, fn)
}

func TestReadingHistoryDelaysNobody(t *testing.T) {
	store := &slowStore{Store: journal.NewMemory(journal.MemoryOptions{})}
	withOrator(t, hub.Options{Store: store}, []string{"one"}, func(t *testing.T, r *room, send func(string) error) {
		store.release = make(chan struct{}) // in the bubble
		store.slow.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 100)
		for range cap(done) {
			go func() { // ends with the read, or with ctx
				_, err := r.History(ctx, &contracts.HistoryRequest{}, reader)
				done <- err
			}()
		}
		say(t, send, "two") // is not delayed
		synctest.Wait()
		if n := store.reading.Load(); n == 0 || n > 64 {
			t.Errorf("got %d reads at once, want few", n)
		}
		cancel()
		synctest.Wait()
		if waiting := len(done); waiting < 36 {
			t.Errorf("got %d requests that ended with their context, want those that waited", waiting)
		}
		store.slow.Store(false)
		close(store.release)
		for range cap(done) {
			<-done
		}
	})
}

// The requests of one principal wait for one another, and not those of others for all of
// them.
func TestManyRequestsOfOnePrincipalDelayOthersByOne(t *testing.T) {
	store := &slowStore{Store: journal.NewMemory(journal.MemoryOptions{})}
	withOrator(t, hub.Options{Store: store}, []string{"one"}, func(t *testing.T, r *room, _ func(string) error) {
		store.release = make(chan struct{}) // in the bubble
		store.slow.Store(true)
		ended := make(chan string, 101)
		read := func(principal string) {
			by := contracts.Caller{Principal: contracts.Principal{ID: principal}}
			go func() { // ends with the read
				if _, err := r.History(t.Context(), &contracts.HistoryRequest{}, by); err != nil {
					t.Error(err)
				}
				ended <- principal
			}()
			synctest.Wait()
		}
		for range 100 {
			read("flood")
		}
		read("ann")
		before := 0
		for principal := ""; principal != "ann"; {
			select {
			case store.release <- struct{}{}: // one read of the store
			case principal = <-ended:
				before++
			}
			synctest.Wait()
		}
		if most := max(1, runtime.GOMAXPROCS(0)/2); before > most+2 {
			t.Errorf("got %d requests that ended no later than that of ann, want at most %d", before, most+2)
		}
		close(store.release)
		for range 101 - before {
			<-ended
		}
	})
}

func TestLocalClientReadsTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		alice := r.guest("alice")
		alice.connects(asController)
		for _, prompt := range []string{"one", "two"} {
			alice.posts(`{"type":"prompt","content":"` + prompt + `"}`)
			synctest.Wait()
		}
		r.suspend()

		r = openRoom(t, hub.Options{Store: store})
		conn, local := memconn.New(memconn.Options{Bare: true})
		served := make(chan error, 1)
		go func() { served <- r.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{Turns: 1}) }() // ends with its input
		page := func(id string) *contracts.HistoryPage {
			t.Helper()
			f, err := (&contracts.Decoder{}).ServerFrame([]byte(r.next(local)))
			envelope, ok := f.(*contracts.HistoryEnvelope)
			if !ok || envelope.ID != id {
				t.Fatalf("got %+v, %v, want the page %q", f, err, id)
			}
			return &envelope.Page
		}
		for range 2 {
			if line := r.next(local); !strings.Contains(line, `"type":"ready"`) && !strings.Contains(line, `"type":"session_info"`) {
				t.Errorf("got %s, want ready and session_info first", line)
			}
		}
		opening := page("")
		if text := transcript(t, opening.Entries); !strings.HasPrefix(text, "prompt two") || strings.Contains(text, "one") {
			t.Errorf("at first: got %s, want the last turn", text)
		}
		if newest := opening.Entries[len(opening.Entries)-1].Cursor; newest > r.Cursor()-2 {
			t.Errorf("at first: got the entry %d, want none that the client gets as an event", newest)
		}
		r.send(local, `{"type":"ws.history","id":"h1","before":`+fmt.Sprint(opening.Entries[0].Cursor)+`,"turns":1}`)
		if text := transcript(t, page("h1").Entries); !strings.HasPrefix(text, "prompt one") {
			t.Errorf("the page before: got %s, want the turn before", text)
		}
		r.send(local, `{"type":"ws.history","id":"h2","kind":"turns"}`)
		if got := lines(page("h2").Turns); fmt.Sprint(got) != "[one completed two completed]" {
			t.Errorf("the index: got %v", got)
		}
		r.send(local, `{"type":"ws.history","id":"h3","kind":"search","query":"TWO"}`)
		if got := page("h3").Hits; len(got) == 0 {
			t.Error("the search found nothing")
		}
		for text, want := range map[string]string{
			`{"type":"ws.history","id":"h4","limit":5000}`: `"request_id":"h4","message":"limit must be 1 to 1000"`,
			`{"type":"ws.history"}`:                        `Invalid headless command: /id Required property`,
			`{"type":"ws.follow","lists":[]}`:              `Unknown headless command type`,
		} {
			r.send(local, text)
			if got := r.next(local); !strings.Contains(got, want) {
				t.Errorf("%s: got %s, want an error with %s", text, got, want)
			}
		}
		local.Close()
		<-served
		<-r.Done()
	})
}
