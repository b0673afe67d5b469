package llm

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// A reader is a model that reads on and on, and summarises when it is asked.
type reader struct {
	t         *testing.T
	turns     int // that are left
	broken    bool
	tooLong   int // so many requests do not fit
	summaries int
	most      int64 // tokens that it was sent
	last      *model.Request
}

func (m *reader) Stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	if err := validConversation(req.Messages); err != nil {
		m.t.Errorf("sent a conversation that no provider takes: %v", err)
	}
	if len(req.Tools) == 0 {
		m.summaries++
		if len(req.Messages) != 1 || req.System != summarize {
			m.t.Errorf("got a request for a summary %+v", req)
		}
		if m.broken {
			return model.Reply{}, failure(model.KindInvalid)
		}
		return says(fmt.Sprintf("Summary %d: turns %d left.", m.summaries, m.turns))(ctx, req, func(model.Delta) error { return nil })
	}
	if m.tooLong > 0 {
		m.tooLong--
		return model.Reply{}, failure(model.KindTooLong)
	}
	m.most, m.last = max(m.most, estimate(req.Messages)), copyOf(m.t, req)
	if m.turns == 0 {
		return says("Done.")(ctx, req, say)
	}
	m.turns--
	reply, err := says(fmt.Sprint("Turn ", m.turns, ". "), callOf(fmt.Sprint("c", m.turns), "read", fmt.Sprintf(`{"path":"%d"}`, m.turns)))(ctx, req, say)
	reply.Usage = model.Usage{}
	return reply, err
}

func longReads(size int) []tool.Tool {
	return []tool.Tool{{Tool: model.Tool{Name: "read"}, Run: files("", func(path string, _ fileArgs) (string, error) {
		return path + strings.Repeat(" word", size/5), nil
	})}}
}

func TestLongHistoriesAreSummarised(t *testing.T) {
	host, state := hosttest.New(t), t.TempDir()
	m := &reader{t: t, turns: 40}
	a := start(t, host, Options{Model: m, ContextTokens: 10_000, StateDir: state, Tools: longReads(4000)})
	hosttest.Must(t, a.Run(t.Context(), prompt("read everything")))
	all := hosttest.As[*contracts.Compaction](host)
	if len(all) < 3 || len(all) != m.summaries {
		t.Fatalf("got %d compactions of %d summaries, want some", len(all), m.summaries)
	}
	for _, c := range all {
		if !c.Auto || c.FirstKeptEntryIndex == 0 || c.TokensBefore < 8000 || !strings.HasPrefix(c.Summary, summaryHead+"Summary ") || c.Timestamp == "" {
			t.Errorf("got %+v", c)
		}
	}
	if !slices.Contains(statuses(host), "Compacting") {
		t.Errorf("got statuses %q, want Compacting", statuses(host))
	}
	if m.most > a.opts.ContextTokens {
		t.Errorf("the model was sent %d tokens, want at most %d", m.most, a.opts.ContextTokens)
	}
	if first := textOf(model.Message{Parts: m.last.Messages[0].Parts}); !strings.HasPrefix(first, summaryHead) {
		t.Errorf("the history begins with %.100q, want the summary", first)
	}
	again, err := openJournal(state, quiet)
	hosttest.Must(t, err)
	info, err := os.Stat(again.path)
	hosttest.Must(t, err)
	if got, want := string(args(t, again.messages)), string(args(t, a.journal.messages)); got != want || info.Size() > 100_000 {
		t.Errorf("got another history from %d bytes of file", info.Size())
	}
	hosttest.Must(t, again.close())
}

func TestWithoutASummaryTheOldIsForgotten(t *testing.T) {
	host := hosttest.New(t)
	m := &reader{t: t, turns: 20, broken: true}
	a := start(t, host, Options{Model: m, ContextTokens: 10_000, Tools: longReads(4000)})
	hosttest.Must(t, a.Run(t.Context(), prompt("read everything there is")))
	all := hosttest.As[*contracts.Compaction](host)
	if len(all) == 0 || !strings.HasPrefix(all[0].Summary, forgotten) || !strings.Contains(all[0].Summary, "read everything there is") {
		t.Errorf("got %+v, want the marker with the request", all)
	}
}

func TestOverflowIsCompactedAndGoneOnWith(t *testing.T) {
	const said = "Prompt exceeded the context window. Compacting history and continuing automatically..."
	for times := 1; times <= maxShrinks+1; times++ {
		host := hosttest.New(t)
		m := &reader{t: t, turns: 6}
		a := start(t, host, Options{Model: m, Tools: longReads(8000)})
		hosttest.Must(t, a.Run(t.Context(), prompt("read")))
		m.tooLong, m.turns = times, 1
		err := a.Run(t.Context(), prompt(strings.Repeat("a long request ", 1000)))
		checkValid(t, a.Agent)
		if (err != nil) != (times > maxShrinks) {
			t.Errorf("too long %d times: got %v", times, err)
		}
		got := statuses(host)
		if at := slices.Index(got, said); at < 0 || got[at+1] != "Compacting" {
			t.Errorf("got statuses %q, want %q and Compacting", got, said)
		}
		if n := len(hosttest.As[*contracts.Compaction](host)); n != min(times, maxShrinks) {
			t.Errorf("got %d compactions, want %d", n, min(times, maxShrinks))
		}
		if sent := string(args(t, m.last.Messages)); err == nil && strings.Contains(sent, "bytes left out") != (times > 1) {
			t.Errorf("too long %d times: got %d bytes, want long texts cut from the second on", times, len(sent))
		}
		hosttest.Must(t, a.Run(t.Context(), prompt("and now?")))
	}
}

func TestSummaryIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := hosttest.New(t)
		read := func(i int) turnFunc {
			return says("", callOf(fmt.Sprint("c", i), "read", fmt.Sprintf(`{"path":"%d"}`, i)))
		}
		m := newFake(t, read(1), read(2), fails("", failure(model.KindTooLong)), fails("", failure(model.KindOverloaded)), says("It went well."), says("Done."))
		a := start(t, host, Options{Model: m, Tools: longReads(4000)})
		hosttest.Must(t, a.Run(t.Context(), prompt("read")))
		if c := hosttest.As[*contracts.Compaction](host); len(c) != 1 || c[0].Summary != summaryHead+"It went well." {
			t.Errorf("got %+v, want the summary", c)
		}
		if ends := hosttest.As[*contracts.ResponseEnd](host); ends[len(ends)-1].Usage.InputTokens != 20 {
			t.Errorf("got usage %+v, want that of the summary in it", ends[len(ends)-1].Usage)
		}
		if req := m.request(-1); len(req.Messages) != 3 {
			t.Errorf("got %s, want the summary, a call and its result", args(t, req.Messages))
		}
	})
}

func (f turnFunc) Stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	return f(ctx, req, say)
}

func TestImagesDoNotFillTheHistory(t *testing.T) {
	a := start(t, hosttest.New(t), Options{Model: says("One.")}) // one that does not copy them
	image := make([]byte, maxHistoryBytes/8)
	work := prompt("look")
	for range 9 {
		work.Attachments = append(work.Attachments, contracts.Attachment{Path: "x.png", MimeType: "image/png", Data: image})
	}
	hosttest.Must(t, a.Run(t.Context(), work))
	if held := imageBytes(a.journal.messages); held != 0 {
		t.Errorf("got %d bytes of images, want them left out", held)
	}
}
