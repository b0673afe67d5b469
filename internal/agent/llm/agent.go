package llm

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// Options are what a loop gets from its operator. Model, ServerTools, ClientTools,
// Workspace and Log are required.
type Options struct {
	// Name is PROVIDER/MODEL, for clients.
	Name string

	// Model answers. It is used by one run at a time.
	Model model.Model

	// Tools are the tools of the model besides ask_user.
	Tools []tool.Tool

	// Offers reports whether the model may get a tool. Nil offers all tools.
	Offers func(name string) bool

	// ServerTools returns the tools of MCP servers. It is called before each turn of the
	// model, and waits only briefly for servers that are not there.
	ServerTools func(ctx context.Context) []tool.Tool

	// ClientTools returns the tools that the controlling client runs itself. It
	// is called before each turn of the model.
	ClientTools func() []model.Tool

	// Workspace is where the agent works. The caller closes it after the agent.
	Workspace *workspace.Workspace

	// StateDir is the directory of the history. Empty keeps it in memory.
	StateDir string

	// Rules decide which calls run, are asked about or denied.
	Rules Rules

	// Metadata are ids that the provider or a gateway records with a request.
	Metadata map[string]string

	// MaxIterations bounds the turns of the model in one run. Zero means 100. The
	// run then ends with an error that says so.
	MaxIterations int

	// NoRetries ends a run when the provider fails. Otherwise the agent asks a provider
	// again whose failure may pass, up to 4 times in one turn.
	NoRetries bool

	// ContextTokens is the size of the model's context. Zero means 200,000. A
	// conversation that leaves less than a reserve of it is summarised.
	ContextTokens int64

	// MaxTokens bounds one reply. Zero means the provider's default.
	MaxTokens int64

	// Price is what tokens cost. With the zero value clients see a cost of 0.
	Price Price

	// Log receives faults.
	Log *slog.Logger
}

// An Agent lets a model work in a workspace. Start is called once, then Run or
// Resume once at a time, Configure and Check at any time, and Close last.
type Agent struct {
	opts     Options
	provider string
	model    string

	// Set by Start.
	host contracts.Host

	// Set by Start, and then of the one run.
	journal *journal
	counted counted

	mu     sync.Mutex
	prompt string       // the system prompt without the instructions of the workspace
	effort model.Effort // "" leaves it to the provider
}

// New returns an agent that has not started.
func New(o Options) *Agent {
	o.MaxIterations = cmp.Or(max(o.MaxIterations, 0), 100)
	o.ContextTokens = cmp.Or(max(o.ContextTokens, 0), 200_000)
	a := &Agent{opts: o, prompt: basePrompt(o.Workspace.Root())}
	a.provider, a.model, _ = strings.Cut(o.Name, "/")
	return a
}

// Start opens the history that an earlier process left.
func (a *Agent) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	journal, err := openJournal(a.opts.StateDir, a.opts.Log)
	if err != nil {
		return contracts.AgentInfo{}, err
	}
	a.host, a.journal = host, journal
	return contracts.AgentInfo{
		Model: a.model, Provider: a.provider, Executor: contracts.ExecutorLive, Steers: true,
		Requests: []contracts.RequestType{
			contracts.RequestApproval, contracts.RequestClientTool, contracts.RequestUserInput, contracts.RequestToolRetry,
		},
	}, nil
}

// Configure applies an init to the turns of the model that begin after it.
// Approval is the host's business.
func (a *Agent) Configure(init *contracts.Init) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if init.SystemPrompt != nil {
		a.prompt = *init.SystemPrompt
	}
	if more := init.AppendSystemPrompt; more != nil {
		a.prompt = paragraphs(a.prompt, *more)
	}
	if init.ThinkingLevel != "" {
		a.effort = model.Effort(init.ThinkingLevel)
	}
}

// Check refuses a prompt that the model's context has no room for.
func (a *Agent) Check(content string) error {
	if tokens := estimateText(content); tokens > a.bound() {
		return &contracts.Error{
			Code:    contracts.CodePayloadTooLarge,
			Message: fmt.Sprintf("The prompt has about %d tokens, and the model has room for %d", tokens, a.bound()),
			Type:    contracts.ErrorProtocol,
		}
	}
	return nil
}

// Run lets the model work on a prompt until it has nothing more to do.
func (a *Agent) Run(ctx context.Context, work contracts.Work) error {
	r := &run{Agent: a, Turn: turn.New(a.host, a.model, a.provider)}
	if forModel, err := r.take(ctx, work, a.journal.unanswered()); err != nil || !forModel {
		return err
	}
	return r.serve(ctx)
}

// take adds a prompt to the history, or answers it. It reports whether the model shall
// answer. unanswered says that an earlier prompt got no answer.
func (r *run) take(ctx context.Context, work contracts.Work, unanswered bool) (forModel bool, err error) {
	text, err := r.ruled(work)
	parts := promptParts(work)
	switch {
	case err != nil:
		return false, err
	case text == "" && len(parts) == 0:
		text = "The prompt is empty."
		fallthrough
	case text != "":
		return false, r.answer(ctx, text)
	}
	if unanswered {
		parts = append([]model.Part{textPart(noAnswer)}, parts...)
	}
	return true, r.add(record{Message: &model.Message{Role: model.RoleUser, Parts: parts}})
}

// steer takes the prompts with which users steer the run. It reports whether the model
// shall answer one of them.
func (r *run) steer(ctx context.Context) (forModel bool, err error) {
	for _, work := range r.host.Steering(ctx) {
		more, err := r.take(ctx, work, false)
		if err != nil {
			return false, err
		}
		forModel = forModel || more
	}
	return forModel, nil
}

// Close closes the history.
func (a *Agent) Close(context.Context) error {
	if a.journal == nil {
		return nil
	}
	return a.journal.close()
}

// A run works on one prompt or one late answer. It belongs to one goroutine.
type run struct {
	*Agent
	*turn.Turn
	offers  []tool.Tool // of the current turn
	spent   model.Usage
	floor   int64 // a history with fewer tokens is not compacted again
	recent  repetition
	resumes continuation
}

// answer answers a prompt without the model.
func (r *run) answer(ctx context.Context, text string) error {
	if err := r.Turn.Start(ctx); err != nil {
		return err
	}
	if err := r.Say(ctx, text); err != nil {
		return err
	}
	return r.End(ctx, contracts.Usage{})
}

// serve alternates between the model and its calls until the model ends its turn. It
// leaves a valid history, also after a panic.
func (r *run) serve(ctx context.Context) error {
	defer func() {
		why := "Not run: the run had ended."
		if ctx.Err() != nil {
			why = "Not run: interrupted."
		}
		if err := r.journal.add(r.journal.repairs(why)...); err != nil {
			r.opts.Log.Error("keep history", slog.Any("err", err))
		}
	}()
	for range r.opts.MaxIterations {
		reply, err := r.reply(ctx)
		if err != nil {
			return err
		}
		goOn := false
		switch {
		case reply.stop == model.StopRefused && reply.text == "":
			return ended(contracts.ErrorTool, "The model refused to answer")
		case reply.stop == model.StopRefused:
			return ended(contracts.ErrorTool, "The model refused to go on")
		case len(reply.calls) > 0:
			r.resumes = continuation{}
			goOn, err = true, r.calls(ctx, reply.calls)
		case reply.stop == model.StopLength:
			goOn, err = r.proceed(ctx, reply)
		case reply.text == "":
			err = r.status(ctx, "The model ended its turn without a word")
		}
		if err != nil {
			return err
		}
		if steered, err := r.steer(ctx); err != nil || !goOn && !steered {
			return err
		}
	}
	if err := r.tell(ctx, map[string]any{"type": "turn_limit", "turns": r.opts.MaxIterations}); err != nil {
		return err
	}
	return ended(contracts.ErrorTool, fmt.Sprintf("Stopped after %d turns of the model. Send another prompt to go on.", r.opts.MaxIterations))
}

// add extends the history. The error is fit for clients.
func (r *run) add(recs ...record) error {
	if err := r.journal.add(recs...); err != nil {
		return r.failed(err)
	}
	return nil
}

// tell publishes a raw agent event. Only clients that asked for such events get it.
func (r *run) tell(ctx context.Context, event map[string]any) error {
	return r.host.Publish(ctx, &contracts.RawAgentEvent{EventKind: event["type"].(string), Event: encode(event)})
}

func (r *run) status(ctx context.Context, text string) error {
	return r.host.Publish(ctx, &contracts.Status{Message: text})
}
