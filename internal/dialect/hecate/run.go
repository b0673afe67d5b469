package hecate

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// unknown stands for the model and the provider of a session that did not name them.
const unknown = "unknown"

// defaultLease is the lease of a worker if the options have none.
const defaultLease = 60 * time.Second

// operator is a person who decided something.
const operator = "operator"

// runtime is the server.
const runtime = "runtime"

// A run is one prompt in progress.
type run struct {
	ID       string    `json:"id"`
	Began    time.Time `json:"began"`
	Next     uint64    `json:"next"`               // sequence of the next event
	Rounds   int64     `json:"rounds,omitempty"`   // of the model, that have begun
	Usage    totals    `json:"usage,omitzero"`     // of the rounds
	Turn     *turn     `json:"turn,omitempty"`     // the open round
	Answer   clean     `json:"answer,omitzero"`    // the last text, at most maxAnswer bytes
	Failure  *failure  `json:"failure,omitempty"`  // the error that ends the run unless the agent goes on
	Stop     *stop     `json:"stop,omitempty"`     // who asked for the end of the run
	Calls    []*call   `json:"calls,omitempty"`    // open, in their order; at most maxCalls
	Requests []request `json:"requests,omitempty"` // open; at most maxRequests
	Late     bool      `json:"late,omitempty"`     // the run has only the end of an answered call
}

// A lastRun is what the next run says of the run before.
type lastRun struct {
	ID   string `json:"id"`
	Next uint64 `json:"next"`
	Cost int64  `json:"cost"`
}

// totals are what rounds have cost.
type totals struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
	Cost   int64 `json:"cost"`  // micro-USD
	Known  bool  `json:"known"` // some round said what it cost
}

type failure struct {
	Type    contracts.ErrorType `json:"type"`
	Message clean               `json:"message"`
}

type stop struct {
	By     string `json:"by"`
	Reason clean  `json:"reason"`
}

// draft adds an event to the open run.
func (s *Session) draft(name string, data object) {
	s.Run.Next++
	s.append(s.Run.ID, name, data)
}

func (s *Session) append(runID, name string, data object) {
	s.drafts = append(s.drafts, Draft{RunID: runID, Type: s.Vocabulary.eventType(name), At: s.At, Data: s.encode(data)})
}

// begin opens a run. resumes says that it goes on with the work of the last run.
func (s *Session) begin(resumes bool) {
	s.Runs++
	s.Run = &run{ID: ULID("run", s.At, derive(s.Seed, s.Runs)), Began: s.At}
	var prior any
	if s.Last != nil {
		prior = s.Last.ID
	}
	resumes = resumes && s.Last != nil
	if resumes {
		s.draft("run.resumed_from_event", object{
			{"from_run_id", s.Last.ID}, {"from_sequence", s.Last.Next - 1}, {"prior_cost_micros_usd", s.Last.Cost},
		})
	}
	queued := object{{"kind", "agent_loop"}, {"model", s.model()}, {"provider", s.provider()}}
	queued = append(queued.add("workspace_path", s.Cwd), member{"prior_run_id", prior})
	if resumes {
		queued = append(queued, member{"resume", true})
	}
	s.draft("run.queued", queued.add("maestro_session_id", s.Options.SessionID))
}

// started says that the agent works on the run.
func (s *Session) started() {
	lease := cmp.Or(s.Options.LeaseTTL, defaultLease)
	s.draft("run.started", object{
		{"worker_id", cmp.Or(s.Options.Owner, "maestro")}, {"lease_until", s.At.Add(lease).Format(time.RFC3339Nano)},
	})
}

func (s *Session) model() string    { return cmp.Or(s.Model, unknown) }
func (s *Session) provider() string { return cmp.Or(s.Provider, unknown) }

// prompt begins the run of a prompt. In an open run the text is one more message of the
// user.
func (s *Session) prompt(text string) {
	fresh := s.Run == nil
	if fresh {
		s.begin(false)
	}
	s.draft("user.message", object{{"turn_index", s.Run.Rounds + 1}, {"text", text}})
	if fresh {
		s.started()
	}
}

// work makes sure that a run is open, because the agent does something.
func (s *Session) work() {
	if s.Run == nil {
		s.begin(true)
		s.started()
		s.decideKept()
	}
	s.Run.Failure, s.Run.Late = nil, false
}

// finish ends the open run as the agent has ended it.
func (s *Session) finish() {
	r := s.Run
	switch {
	case r.Failure != nil && r.Failure.Type != contracts.ErrorCancelled:
		s.fail(string(r.Failure.Type), r.Failure.Message)
	case r.Failure != nil || r.Stop != nil || len(r.Requests) > 0:
		s.cancel()
	default:
		s.close(plain("the run ended"))
		if r.Answer.Text != "" {
			s.draft("assistant.final_answer", r.index(member{"summary", r.Answer}))
		}
		data := object{{"final_status", "completed"}, {"turns", r.Rounds}}
		if r.Usage.Known {
			data = append(data, member{"cost_micros_usd", r.Usage.Cost})
		}
		s.end("run.finished", append(data, member{"duration_ms", s.At.Sub(r.Began).Milliseconds()}))
	}
}

func (s *Session) fail(code string, message clean) {
	message = message.or(plain(code))
	s.close(message)
	s.end("run.failed", object{
		{"code", code}, {"message", message},
		{"retriable", code == string(contracts.ErrorTransient)}, {"turns", s.Run.Rounds},
	})
}

// cancel ends a run that was stopped. Its open questions can still be answered, because
// the native session resolves those of a run that cannot go on.
func (s *Session) cancel() {
	r := s.Run
	why := stop{By: runtime, Reason: plain("suspended until its question is answered")}
	if r.Failure != nil {
		why = stopOf(r.Failure.Message)
	}
	if r.Stop != nil {
		why = *r.Stop
	}
	s.close(why.Reason)
	if len(r.Requests) > 0 {
		s.draft("run.checkpoint_saved", object{{"checkpoint_id", "cursor_" + strconv.FormatUint(s.Cursor, 10)}})
	}
	s.end("run.cancelled", object{{"by", why.By}, {"reason", why.Reason.or(plain("cancelled"))}})
}

// stopOf returns what the error says that the session sends at the end of a run that was
// stopped.
func stopOf(message clean) stop {
	if message.Text == "Run interrupted by user" || message.Text == "Run cancelled by user" {
		return stop{operator, message}
	}
	return stop{runtime, message}
}

// close ends the calls that run and the open round. Calls that wait for a decision stay.
func (s *Session) close(why clean) {
	for _, c := range slices.Clone(s.Run.Calls) {
		if c.Invoked {
			s.endCall(c, "tool.failed", why)
		}
	}
	if s.Run.Turn != nil {
		s.turnFailed(why)
	}
}

// end appends the terminal event of the run.
func (s *Session) end(name string, data object) {
	s.draft(name, data)
	r := s.Run
	s.keep(r.Requests)
	s.Last, s.Run = &lastRun{ID: r.ID, Next: r.Next, Cost: r.Usage.Cost}, nil
}
