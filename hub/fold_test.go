package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A scene is one step of a history, drawn before it is played: what it means
// depends on what is there when its turn comes.
type scene struct {
	Do    string
	Who   int
	Text  string
	Times int
}

var drawScene = rapid.Custom(func(t *rapid.T) scene {
	return scene{
		Do: rapid.SampledFrom([]string{
			"prompt", "prompt", "say", "say", "say", "think", "output", "status", "start", "close", "call", "ask", "answer", "deny",
			"init", "interrupt", "end", "fail", "join", "join", "deaf", "freeze", "freeze", "thaw", "drop", "resume", "rejoin",
		}).Draw(t, "do"),
		Who:   rapid.IntRange(0, 3).Draw(t, "who"),
		Text:  rapid.SampledFrom([]string{"a", "né\n\"", "😀", strings.Repeat("long ", 300)}).Draw(t, "text"),
		Times: rapid.SampledFrom([]int{1, 2, 40}).Draw(t, "times"),
	}
})

// A theatre is a hub with a puppet, one controller and some followers.
type theatre struct {
	*hub.Hub
	agent     *puppet
	driver    *follower
	audience  [4]*follower
	ledger    *ledger
	asked     int
	questions []string
	merged    int
}

// TestEveryFollowerEndsWithTheStateOfAFreshSnapshot is the central promise,
// through the hub (R79): for any history, whoever attaches, comes back or lags
// at any point and folds what it gets has the state that the hub shows. The
// window is so small that those who lag read merged frames from the store (D5).
func TestEveryFollowerEndsWithTheStateOfAFreshSnapshot(t *testing.T) {
	merged := 0
	rapid.Check(t, func(rt *rapid.T) {
		scenes := rapid.SliceOfN(drawScene, 1, 40).Draw(rt, "scenes")
		var err error
		synctest.Test(t, func(t *testing.T) {
			var n int
			n, err = playScenes(scenes)
			merged += n
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
	if merged == 0 {
		t.Error("got no merged frame in any history, want some")
	}
}

func playScenes(scenes []scene) (merged int, err error) {
	th := &theatre{agent: newPuppet()}
	store := journal.NewMemory(journal.MemoryOptions{})
	th.ledger = &ledger{store: store, transient: map[uint64]string{}}
	th.Hub, err = hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: th.agent, Store: store, WindowBytes: 2 << 10, CheckpointBytes: 8 << 10})
	if err != nil {
		return 0, err
	}
	if err := th.Start(context.Background()); err != nil {
		return 0, err
	}
	defer func() {
		for _, f := range th.everybody() {
			f.peer.Thaw()
		}
		err = errors.Join(err, th.Close(context.Background()))
		for _, f := range th.everybody() {
			f.peer.Close()
		}
	}()
	th.driver = th.attach(contracts.RoleController, nil, true)
	var moments []*contracts.Snapshot
	for i, sc := range scenes {
		synctest.Wait()
		moments = append(moments, th.Snapshot())
		if err := th.play(sc); err != nil {
			return 0, fmt.Errorf("scene %d, %+v: %w", i, sc, err)
		}
	}
	for _, f := range th.everybody() {
		f.peer.Thaw()
	}
	synctest.Wait()
	if err := th.check(); err != nil {
		return 0, err
	}
	for _, then := range moments {
		past, err := stateAt(th.Hub, then.Cursor)
		if err == nil {
			err = sameMoment(past, then)
		}
		if err != nil {
			return 0, err
		}
	}
	for _, f := range th.everybody() {
		merged += f.merged
	}
	return merged + th.merged, nil
}

// check returns an error unless the driver has the hub's state, and so has
// everybody who is not behind.
func (th *theatre) check() error {
	if err := th.ledger.refresh(); err != nil {
		return err
	}
	live := th.Snapshot()
	for i, f := range th.everybody() {
		if err := f.read(); err != nil {
			return fmt.Errorf("follower %d: %w", i, err)
		}
		if err := f.caughtUp(live); err != nil {
			return fmt.Errorf("follower %d: %w", i, err)
		}
	}
	return nil
}

func (th *theatre) everybody() []*follower {
	all := []*follower{th.driver}
	for _, f := range th.audience {
		if f != nil {
			all = append(all, f)
		}
	}
	return all
}

// attach lets a client in. With a follower that it continues, it says where
// that one stopped.
func (th *theatre) attach(role contracts.Role, from *follower, people bool, optOuts ...string) *follower {
	conn, peer := memconn.New(memconn.Options{})
	f := newFollower(peer, th.ledger, optOuts...)
	f.people = people
	att := contracts.Attach{Role: role, Epoch: th.Epoch()}
	if from != nil {
		cursor := int64(from.cursor)
		att.Cursor, f.cursor, f.state, f.optOuts, f.resumes = &cursor, from.cursor, from.state, from.optOuts, true
		th.merged += from.merged
	}
	go func() { // ends when the hub or the peer closes the connection
		_ = th.Serve(context.Background(), conn, hub.WireEnvelope, &att)
	}()
	var outs []string
	for _, kind := range f.optOuts[:len(f.optOuts)-1] {
		outs = append(outs, `"`+kind+`"`)
	}
	_ = peer.Send(fmt.Sprintf(`{"type":"hello","capabilities":{"server_requests":["approval","client_tool"],"people":%t},"opt_out_notifications":[%s]}`, people, strings.Join(outs, ",")))
	return f
}

// play does one scene, or nothing where it makes no sense.
func (th *theatre) play(sc scene) error {
	f := th.audience[sc.Who]
	switch sc.Do {
	case "join", "deaf":
		if f != nil {
			return nil
		}
		outs := []string{}
		if sc.Do == "deaf" {
			outs = []string{"status", "connection_info"}
		}
		th.audience[sc.Who] = th.attach(contracts.RoleViewer, nil, sc.Who%2 == 0, outs...)
		return nil
	case "freeze", "thaw", "drop", "resume", "rejoin":
		if f == nil {
			return nil
		}
		return th.move(sc, f)
	case "prompt", "init", "interrupt", "answer", "deny":
		return th.drive(sc)
	}
	if th.agent.active() == 0 {
		return nil
	}
	th.act(sc)
	return nil
}

// move changes how a follower follows.
func (th *theatre) move(sc scene, f *follower) error {
	switch sc.Do {
	case "freeze":
		f.peer.Freeze()
		return nil
	case "thaw":
		f.peer.Thaw()
		return nil
	}
	if err := th.ledger.refresh(); err != nil {
		return err
	}
	if err := f.read(); err != nil { // a frozen one gets nothing: it comes back from further behind
		return err
	}
	f.peer.Close()
	f.peer.Thaw()
	th.audience[sc.Who] = nil
	switch {
	case sc.Do == "resume" && f.cursor > 0:
		th.audience[sc.Who] = th.attach(contracts.RoleViewer, f, f.people)
	case sc.Do == "rejoin":
		th.audience[sc.Who] = th.attach(contracts.RoleViewer, nil, sc.Who%2 == 0)
	}
	synctest.Wait()
	return nil
}

// drive sends a command of the controller.
func (th *theatre) drive(sc scene) error {
	text := map[string]string{
		"prompt": `{"type":"prompt","content":"go"}`, "interrupt": `{"type":"interrupt"}`,
		"init": `{"type":"init","append_system_prompt":"x"}`,
	}[sc.Do]
	if text == "" {
		if len(th.questions) == 0 {
			return nil
		}
		text = fmt.Sprintf(`{"type":"server_request_response","request_type":"approval","request_id":%q,"approved":%t}`, th.questions[0], sc.Do == "answer")
		th.questions = th.questions[1:]
	}
	return th.driver.peer.Send(text)
}

// act lets the agent do something in its run.
func (th *theatre) act(sc scene) {
	p := th.agent
	switch sc.Do {
	case "start":
		p.orders <- p.publish(&contracts.ResponseStart{ResponseID: "r"})
	case "close":
		p.orders <- p.publish(&contracts.ResponseEnd{ResponseID: "r", ToolsSummary: contracts.ToolsSummary{ToolsUsed: []string{}}})
	case "call":
		p.orders <- p.publish(&contracts.ToolCall{CallID: "c", Tool: "bash", Args: []byte(`{}`)}, &contracts.ToolStart{CallID: "c"})
	case "ask":
		id := fmt.Sprint("q", th.asked)
		th.asked++
		th.questions = append(th.questions, id)
		p.orders <- p.ask(question(contracts.RequestApproval, id), contracts.AskOptions{})
	case "end":
		p.orders <- end(nil)
	case "fail":
		p.orders <- end(errors.New("as told"))
	case "status":
		p.orders <- p.publish(&contracts.Status{Message: sc.Text})
	}
	for range sc.Times {
		switch sc.Do {
		case "say", "think":
			p.orders <- p.publish(&contracts.ResponseChunk{ResponseID: "r", Content: sc.Text, IsThinking: sc.Do == "think"})
		case "output":
			p.orders <- p.publish(&contracts.ToolOutput{CallID: "c", Content: sc.Text})
		}
	}
}
