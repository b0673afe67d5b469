package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

const taskTurns = 40

// taskCalls are the calls of one turn of the task: files are written, looked at
// two at a time, and edited. Making them again after an interrupt does the same.
func taskCalls(t testing.TB, turn int) []model.Call {
	file := fmt.Sprintf("dir%d/file%d.txt", turn%3, turn/4)
	id := fmt.Sprint("toolu_", turn)
	switch turn % 4 {
	case 0:
		return []model.Call{{ID: id, Tool: "write", Args: args(t, fileArgs{Path: fmt.Sprintf("file%d.txt", turn/4), Text: fmt.Sprintf("begun in %d", turn)})}}
	case 1:
		return []model.Call{
			{ID: id + "a", Tool: "read", Args: args(t, fileArgs{Path: fmt.Sprintf("file%d.txt", turn/4)})},
			{ID: id + "b", Tool: "read", Args: args(t, fileArgs{Path: "missing.txt"})},
		}
	case 2:
		return []model.Call{{ID: id, Tool: "edit", Args: args(t, fileArgs{Path: fmt.Sprintf("file%d.txt", turn/4), Old: "begun", Text: "begun, edited"})}}
	}
	return []model.Call{
		{ID: id, Tool: "write", Args: args(t, fileArgs{Path: strings.ReplaceAll(file, "/", "_"), Text: "copy"})},
		{ID: id, Tool: "read", Args: args(t, fileArgs{Path: fmt.Sprintf("file%d.txt", turn/4)})}, // ids may repeat
	}
}

// taskTree is what the task leaves behind.
func taskTree() map[string]string {
	tree := map[string]string{}
	for turn := range taskTurns {
		switch turn % 4 {
		case 2:
			tree[fmt.Sprintf("file%d.txt", turn/4)] = fmt.Sprintf("begun, edited in %d", turn-2)
		case 3:
			tree[fmt.Sprintf("dir%d_file%d.txt", turn%3, turn/4)] = "copy"
		}
	}
	return tree
}

func treeOf(t testing.TB, dir string) map[string]string {
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		tree[filepath.Base(path)] = string(text)
		return err
	})
	hosttest.Must(t, err)
	return tree
}

// A task is the forty turns on their way, with one fault in them.
type task struct {
	t      *testing.T
	dir    string
	state  string
	host   *hosttest.Host
	agent  *session
	turn   int          // the next one of the script
	faulty map[int]bool // the turns whose fault is still to come
	fault  fault

	mu     sync.Mutex
	cancel func() // ends the run that goes on
	killed bool
	lost   string // what earlier processes showed
}

// A fault is what goes wrong at a turn of the model, or in a tool.
type fault struct {
	name   string
	answer func(k *task, say func(model.Delta) error) (model.Reply, error) // of the model
	inTool bool                                                            // crash or interrupt while tools run
	stop   func(k *task)                                                   // interrupt or kill
	loses  bool                                                            // history is summarised
}

var errInterrupted = errors.New("interrupted")

func faults() []fault {
	var all []fault
	for _, kind := range []model.Kind{model.KindOverloaded, model.KindTransient, model.KindCut, model.KindMalformed, model.KindTooLong, model.KindAuth, model.KindQuota, model.KindInvalid} {
		for _, text := range []string{"", "It broke off in the middle of ", "   "} {
			name := map[string]string{"": " at once", "   ": " after blanks"}[text]
			all = append(all, fault{name: string(kind) + name, loses: kind == model.KindTooLong, answer: func(k *task, say func(model.Delta) error) (model.Reply, error) {
				return fails(text, failure(kind))(k.t.Context(), nil, say)
			}})
		}
	}
	all = append(all, fault{name: "an error of no known kind", answer: func(k *task, say func(model.Delta) error) (model.Reply, error) {
		return fails("Half a ", errors.New("token=sk-secret broke"))(k.t.Context(), nil, say)
	}})
	for name, stop := range map[string]func(k *task){"interrupt": (*task).interrupt, "kill": (*task).kill} {
		all = append(all, fault{name: name + " in a tool", inTool: true, stop: stop},
			fault{name: name + " before a word", stop: stop, answer: func(k *task, _ func(model.Delta) error) (model.Reply, error) {
				stop(k)
				return model.Reply{}, errInterrupted
			}},
			fault{name: name + " in a text", stop: stop, answer: func(k *task, say func(model.Delta) error) (model.Reply, error) {
				if err := say(model.Delta{Text: "It is said until "}); err != nil {
					return model.Reply{}, err
				}
				stop(k)
				return model.Reply{}, errInterrupted
			}})
	}
	return all
}

func (k *task) interrupt() { k.cancel() }

// kill keeps what is on disk at this moment for the next process, and ends this
// one.
func (k *task) kill() {
	next := filepath.Join(k.t.TempDir(), "state")
	hosttest.Must(k.t, os.CopyFS(next, os.DirFS(k.state)))
	k.state = next
	k.killed = true
	k.cancel()
}

func (k *task) Stream(ctx context.Context, req *model.Request, say func(model.Delta) error) (model.Reply, error) {
	if err := validConversation(req.Messages); err != nil {
		k.t.Errorf("turn %d: sent a conversation that no provider takes: %v", k.turn, err)
	}
	if len(req.Tools) == 0 {
		return says("The task goes on.")(ctx, req, say)
	}
	if k.faulty[k.turn] && k.fault.answer != nil {
		delete(k.faulty, k.turn)
		return k.fault.answer(k, say)
	}
	if k.turn == taskTurns {
		return says("All done. ")(ctx, req, say)
	}
	calls := taskCalls(k.t, k.turn)
	if !k.faulty[k.turn] { // else a tool stops the run, and the turn is taken again
		k.turn++
	}
	return says(fmt.Sprintf("Turn %d. ", k.turn), calls...)(ctx, req, say)
}

// open starts an agent on the task's directories.
func (k *task) open() {
	k.host = hosttest.New(k.t)
	tools := fileTools(k.dir)
	for i := range tools {
		run := tools[i].Run
		tools[i].Run = func(ctx context.Context, args json.RawMessage, out func(string) error) (tool.Result, error) {
			result, err := run(ctx, args, out)
			if k.fault.inTool && k.takeFault() {
				k.fault.stop(k)
				return tool.Result{}, context.Cause(ctx)
			}
			return result, err
		}
	}
	k.agent = open(k.t, k.host, Options{Model: k, Tools: tools, Workspace: at(k.t, k.dir), StateDir: k.state})
}

// takeFault reports whether the fault of this turn has just come. Tools call it,
// which run together.
func (k *task) takeFault() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	comes := k.faulty[k.turn]
	delete(k.faulty, k.turn)
	return comes
}

// prompt runs the agent once, and starts another one if this was killed.
func (k *task) prompt(text string) error {
	ctx, cancel := context.WithCancelCause(k.t.Context())
	defer cancel(nil)
	k.cancel = func() { cancel(errInterrupted) }
	err := k.agent.Run(ctx, prompt(text))
	checkValid(k.t, k.agent.Agent)
	if k.killed {
		k.killed = false
		k.lost += k.host.Said()
		hosttest.Must(k.t, k.agent.Close(k.t.Context()))
		k.open()
		checkValid(k.t, k.agent.Agent)
	}
	return err
}

// runTask takes the task to its end with a fault at some of its turns.
func runTask(t *testing.T, f fault, at ...int) {
	k := &task{t: t, dir: t.TempDir(), state: filepath.Join(t.TempDir(), "state"), fault: f, faulty: map[int]bool{}}
	for _, turn := range at {
		k.faulty[turn] = true
	}
	k.open()
	err := k.prompt("Do the task.")
	for tries := 0; err != nil; tries++ {
		if tries == len(at) {
			t.Fatalf("the session is not usable: %v", err)
		}
		checkEnd(t, f, err)
		err = k.prompt("Go on.")
	}
	if len(k.faulty) > 0 {
		t.Errorf("the faults of the turns %v never happened", k.faulty)
	}
	if got, want := treeOf(t, k.dir), taskTree(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got the tree %v, want %v", got, want)
	}
	if shown, kept := k.lost+k.host.Said(), saidIn(k.agent.journal.messages); !f.loses && strings.Join(strings.Fields(shown), " ") != strings.Join(strings.Fields(kept), " ") {
		t.Errorf("the history has the text %q, want what was shown, %q", kept, shown)
	}
	hosttest.Must(t, k.agent.Close(t.Context()))
	again, err := openJournal(k.state, k.agent.opts.Log)
	hosttest.Must(t, err)
	if string(args(t, again.messages)) != string(args(t, k.agent.journal.messages)) {
		t.Error("the history that is read back is another one")
	}
	hosttest.Must(t, again.close())
}

// checkEnd checks what clients are told of a run that a fault ended.
func checkEnd(t *testing.T, f fault, err error) {
	t.Helper()
	if f.stop != nil {
		if !errors.Is(err, errInterrupted) {
			t.Errorf("got %v, want the cause of the interrupt", err)
		}
		return
	}
	own, ok := errors.AsType[*contracts.Error](err)
	if !ok {
		t.Fatalf("got %v, want an error for clients", err)
	}
	if strings.Contains(own.Message, "sk-secret") {
		t.Errorf("got %q, want it without the secret", own.Message)
	}
	if strings.HasPrefix(f.name, "auth") || strings.HasPrefix(f.name, "invalid") {
		if own.Type != contracts.ErrorFatal {
			t.Errorf("got type %s, want fatal", own.Type)
		}
	}
}

func TestFortyTurnsLeaveTheExactTree(t *testing.T) {
	runTask(t, fault{})
}

// Every fault comes alone, and at every turn of one task.
func TestFaultsAtEveryTurnLeaveAUsableSession(t *testing.T) {
	var every []int
	for turn := range taskTurns {
		every = append(every, turn)
	}
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			for _, at := range [][]int{{17}, every} {
				synctest.Test(t, func(t *testing.T) { runTask(t, f, at...) })
			}
		})
	}
}
