package double

import "slices"

// A Defect is a mistake planted on purpose. The empty one is none.
type Defect string

// The defects. Each is the typical mistake of a plausible server.
const (
	LosesEventOnResume   Defect = "loses-event-on-resume"
	ReplaysOldItems      Defect = "replays-old-items"
	SilentFutureCursor   Defect = "silent-future-cursor"
	IgnoresEpoch         Defect = "ignores-epoch"
	WrongSnapshotCursor  Defect = "wrong-snapshot-cursor"
	HelloOKToAll         Defect = "hello-ok-to-all"
	IgnoresOptOuts       Defect = "ignores-opt-outs"
	ViewerMayPrompt      Defect = "viewer-may-prompt"
	GrantsLeaseTwice     Defect = "grants-lease-twice"
	LoserKeepsDriving    Defect = "loser-keeps-driving"
	SilentTakeover       Defect = "silent-takeover"
	SameGeneration       Defect = "same-generation"
	AcceptsSecondAnswer  Defect = "accepts-second-answer"
	NoTypeCheck          Defect = "no-type-check"
	RequestTwice         Defect = "request-twice"
	AbsentApproves       Defect = "absent-approves"
	KeepsRequests        Defect = "keeps-requests-on-interrupt"
	LeaksRequests        Defect = "leaks-requests-to-other-sessions"
	ResultBeforeEvents   Defect = "result-before-events"
	RunsRepeats          Defect = "runs-repeats"
	KeepsResponding      Defect = "keeps-responding"
	WrongTotal           Defect = "wrong-total-tokens"
	NeverEndsInterrupted Defect = "never-ends-interrupted-response"
	TwoRuns              Defect = "two-runs-at-once"
	ExtraKey             Defect = "extra-key-in-envelope"
	NullOptional         Defect = "null-optional"
	FoldsCase            Defect = "folds-key-case"
	AnswersBlankLines    Defect = "answers-blank-lines"
	DropsLastLine        Defect = "drops-last-line"
	WrongExitStatus      Defect = "wrong-exit-status"
	TokenNotChecked      Defect = "token-not-checked"
	WrongCloseCode       Defect = "wrong-close-code"
)

// Defects lists all of them.
func Defects() []Defect {
	return slices.Clone([]Defect{LosesEventOnResume, ReplaysOldItems, SilentFutureCursor, IgnoresEpoch, WrongSnapshotCursor,
		HelloOKToAll, IgnoresOptOuts, ViewerMayPrompt, GrantsLeaseTwice, LoserKeepsDriving, SilentTakeover, SameGeneration,
		AcceptsSecondAnswer, NoTypeCheck, RequestTwice, AbsentApproves, KeepsRequests, LeaksRequests, ResultBeforeEvents,
		RunsRepeats, KeepsResponding, WrongTotal, NeverEndsInterrupted, TwoRuns, ExtraKey, NullOptional, FoldsCase,
		AnswersBlankLines, DropsLastLine, WrongExitStatus, TokenNotChecked, WrongCloseCode})
}
