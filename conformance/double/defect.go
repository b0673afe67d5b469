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

// The defects of HTTP and SSE, each with the promise it breaks and its rule.
// Some of the above show there as well; see [HTTPDefects].
const (
	BareEventIDs        Defect = "bare-event-ids"         // 1.11.2: an id names epoch and cursor; here the epoch alone
	ReplaysOneTooMany   Defect = "replays-one-too-many"   // A43: only items after the cursor; here that one too
	LosesBetween        Defect = "loses-between"          // A49: nothing is lost between replay and live
	IgnoresLastEventID  Defect = "ignores-last-event-id"  // A59: it wins over the query
	BeginsWithReplay    Defect = "begins-with-replay"     // A42: a stream without a cursor starts with a snapshot
	HeartbeatsWithID    Defect = "heartbeats-with-id"     // 1.11.2: heartbeats have no id
	NeverBeats          Defect = "never-beats"            // A57, 1.11.4: an idle stream has heartbeats, or comments
	StreamsShare        Defect = "streams-share-mailbox"  // A61: a second stream ends the first; here they take turns
	IgnoresQueryOptOuts Defect = "ignores-query-opt-outs" // A56: they apply to an implicit stream
	NoEpochHeader       Defect = "no-epoch-header"        // 1.11.5: state tells the epoch
	ImplicitDrives      Defect = "implicit-drives"        // A36: an implicit stream never takes the lease
	RefusedStays        Defect = "refused-stays"          // A24: a refused controller leaves no connection
	WrongLeaseCode      Defect = "wrong-lease-code"       // A34: controller_lease_held, not runtime_owned_elsewhere
	DeafToHeartbeats    Defect = "deaf-to-heartbeats"     // A32: a heartbeat moves lease_expires_at
	NeverExpires        Defect = "never-expires"          // A31: the lease of a silent holder becomes free
	KeepsLease          Defect = "keeps-lease"            // A15: disconnecting the controller frees the lease
	TalkativeDisconnect Defect = "talkative-disconnect"   // A13: exactly four keys
	MintsConnections    Defect = "mints-connections"      // A5: an unknown connection is 404
	ChangesRoles        Defect = "changes-roles"          // A18: no call changes a role
	RoleByHeader        Defect = "role-by-header"         // A39: the connection's role decides
	AnonymousMayPost    Defect = "anonymous-may-post"     // A35: a message without ids is refused
	ForgetsKeys         Defect = "forgets-keys"           // A72: one Idempotency-Key, one execution
	StaleAnswers        Defect = "stale-answers"          // 1.12: the answer's snapshot shows what the message did
	CodeIsStatusName    Defect = "code-is-status-name"    // A73: code equals error_type
	NoRetryAfter        Defect = "no-retry-after"         // A74: 503 and 429 say when to come back
	HangsUpOnLarge      Defect = "hangs-up-on-large"      // A75: a body that is too long gets 413
	WrongMethodNotFound Defect = "wrong-method-not-found" // 1.1: 405 with Allow
	TrustsPages         Defect = "trusts-pages"           // D10: a page of another origin changes nothing
)

// The defects of utilities, each with the promise it breaks and its rule. All of
// them show on stdio or on sockets; see [UtilityDefects].
const (
	ReordersOutput    Defect = "reorders-output"          // 5.1: order within a stream
	ExitsEarly        Defect = "exits-before-last-output" // R84: the exit comes last
	CutsCharacters    Defect = "cuts-characters"          // R93: a character that is read in two pieces is one
	KeepsAllOutput    Defect = "keeps-all-output"         // R78: a state has 32,768 characters
	TakesAllInput     Defect = "takes-all-input"          // R88: only with allow_stdin
	NeverTypesEOF     Defect = "never-types-eof"          // R89: eof is 0x04 on a terminal
	DeafToResizes     Defect = "deaf-to-resizes"          // R91: a resize that is confirmed is applied
	KillsAtOnce       Defect = "kills-at-once"            // 5.1: a graceful end begins with SIGTERM
	LeavesChildren    Defect = "leaves-children"          // R87: descendants end too
	ReservesRefused   Defect = "reserves-refused-ids"     // 5.1: the id of a refused start is free
	PassesCredentials Defect = "passes-credentials"       // 5.1: credentials are stripped
	SharesUtilities   Defect = "shares-utilities"         // A29: only the owner controls a command
	KeepsWatching     Defect = "keeps-watching"           // R67: interrupt stops watches
	WrongScores       Defect = "wrong-scores"             // R95: 10 for each character before the match
	NeverTruncated    Defect = "never-truncated"          // R95, R96: what is left is said
	FollowsLinks      Defect = "follows-links"            // 5.2: links to directories are not followed
	ReadsAnywhere     Defect = "reads-anywhere"           // R94: nothing outside is read
	NamelessRefusals  Defect = "nameless-refusals"        // R97: a refusal names the request
	CreatesAreRenames Defect = "creates-are-renames"      // 5.4: what is new was created
	ReportsAfterStop  Defect = "reports-after-stop"       // R99: nothing after stopped
	ReportsExcluded   Defect = "reports-excluded"         // R99: built-in excludes
)

// The defects of a hub that shows itself with any agent, each with the promise
// it breaks and its rule. They need [Options.Plain].
const (
	StartsDenied    Defect = "starts-denied-calls"        // R46: a denied call does not start
	ForgetsDenied   Defect = "forgets-denied-calls"       // R46: but it ends
	EndsCallsTwice  Defect = "ends-calls-twice"           // R46: once
	AsksAnyway      Defect = "asks-anyway"                // R51: nothing is asked but in mode prompt
	KeepsPrompts    Defect = "keeps-refused-prompts"      // R42: a refused prompt has no effect
	SilentInterrupt Defect = "silent-interrupt"           // 3.5: clients are told that the run has ended
	UnsortedTools   Defect = "repeats-tools-in-summary"   // R39: free of duplicates
	TakeOverCancels Defect = "takeover-cancels-questions" // D8: they wait for the next controller
	HidesQuestions  Defect = "hides-questions-from-late"  // R73: a snapshot has what waits
)

// The habits of a server of the published protocol, each with the advice it gets.
// With the seed profile they are defects. Some of the above are habits too; see
// [Habits].
const (
	NoRetryable        Defect = "no-retryable"         // 1.4: whether trying again helps
	NoDetails          Defect = "no-details"           // 1.4: details in every refusal
	CodeOnly           Defect = "code-only"            // A73, 5.10: code is a status name, and there is no error_type
	ForbidsAll         Defect = "forbids-all"          // 5.10: 403 for whatever is wrong
	NoPendingRequests  Defect = "no-pending-requests"  // R73: one list of what waits
	NoEpochs           Defect = "no-epochs"            // 1.11: the header of the epoch
	NoEventIDs         Defect = "no-event-ids"         // 1.11: ids of events
	NoRetryHint        Defect = "no-retry-hint"        // 1.11: retry
	AnyCursor          Defect = "any-cursor"           // 1.11: a cursor that is no number
	NoTokens           Defect = "no-tokens"            // 8.1: secrets of connections
	TerseAnswers       Defect = "terse-answers"        // 1.12: what a message did
	FewRoutes          Defect = "few-routes"           // 1.1: those of one published server alone
	BareState          Defect = "bare-state"           // 1.1: the state at the session alone
	OldSpellings       Defect = "old-spellings"        // 1.2: two families of headers
	AnyHeaders         Defect = "any-headers"          // 1.2: headers that contradict each other
	IgnoresRoleHeader  Defect = "ignores-role-header"  // 1.12: a role in the headers of a message
	PlainHealth        Defect = "plain-health"         // 1.13: health as text, readiness as a report
	ForgetsGone        Defect = "forgets-gone"         // A16: a repeated disconnect
	AnnouncesNothing   Defect = "announces-nothing"    // 1.6, 3.4: connection_info
	SilentInit         Defect = "silent-init"          // R33: over HTTP an init goes without a word
	NoElicitations     Defect = "no-elicitations"      // the word mcp_elicitation
	ApprovalsOnly      Defect = "approvals-only"       // the triggers of the conformance agent but one
	SameCursorSnapshot Defect = "same-cursor-snapshot" // 2.2: a cursor of its own for each snapshot
	ShowsOldItems      Defect = "shows-old-items"      // 1.9: nothing old on a stream
	StreamsLiveOn      Defect = "streams-live-on"      // 1.13, 3.6, A96: the end of what nothing comes on
	RefusesMore        Defect = "refuses-more"         // D13: unknown keys and nulls
	LongLines          Defect = "long-lines"           // R13: a limit for lines
	OptOutOnce         Defect = "opt-out-once"         // R12: an opt-out that is named twice
	TypesByText        Defect = "types-by-text"        // R103: types of errors of their own
	SplitsExits        Defect = "splits-exits"         // 0.2: exit_code and signal together
	NamelessCommands   Defect = "nameless-commands"    // 2.2: request_id, but for reads
	CachedIdentity     Defect = "cached-identity"      // A85, 5.5: no-store
	OwnerlessIdentity  Defect = "ownerless-identity"   // 5.3: an identity without an owner generation
	DrainsAgain        Defect = "drains-again"         // A98: the first result again
)

// Habits lists what a server of [Options.Published] does.
func Habits() []Defect {
	return []Defect{NoRetryable, NoDetails, CodeOnly, ForbidsAll, NoPendingRequests, NoEpochs, NoEventIDs, NoRetryHint, AnyCursor, NoTokens,
		TerseAnswers, FewRoutes, BareState, OldSpellings, AnyHeaders, IgnoresRoleHeader, PlainHealth, ForgetsGone, AnnouncesNothing, SilentInit,
		NoElicitations, ApprovalsOnly, SameCursorSnapshot, ShowsOldItems, StreamsLiveOn, RefusesMore, LongLines, OptOutOnce, TypesByText,
		SplitsExits, NamelessCommands, CachedIdentity, OwnerlessIdentity, DrainsAgain,
		SilentFutureCursor, IgnoresEpoch, AnswersBlankLines, IgnoresLastEventID, BeginsWithReplay, NeverBeats, StreamsShare,
		RefusedStays, DeafToHeartbeats, NeverExpires, ChangesRoles, AnonymousMayPost, ForgetsKeys, NoRetryAfter, HangsUpOnLarge,
		WrongMethodNotFound, TrustsPages, CutsCharacters, PassesCredentials, WrongScores, FollowsLinks, CreatesAreRenames, SilentInterrupt}
}

// AgentDefects lists those that show with any agent.
func AgentDefects() []Defect {
	return []Defect{StartsDenied, ForgetsDenied, EndsCallsTwice, AsksAnyway, KeepsPrompts, SilentInterrupt, UnsortedTools, TakeOverCancels, HidesQuestions}
}

// The defects of tools that clients announce, each with the promise it breaks.
const (
	HidesTools     Defect = "hides-client-tools"          // 3.1: the agent is offered them
	KeepsTools     Defect = "keeps-client-tools"          // R29, D8: those of the controller's latest hello
	ViewersTools   Defect = "offers-viewers-tools"        // R27: a viewer's are no offer
	MalformedTools Defect = "takes-malformed-tools"       // 3.1: what no agent could be offered is refused
	UncalledTools  Defect = "takes-tools-of-the-unasking" // 3.1: who announces tools takes client_tool requests
)

// ToolDefects lists those of tools that clients announce.
func ToolDefects() []Defect {
	return []Defect{HidesTools, KeepsTools, ViewersTools, MalformedTools, UncalledTools}
}

// UtilityDefects lists those of utilities.
func UtilityDefects() []Defect {
	return []Defect{ReordersOutput, ExitsEarly, CutsCharacters, KeepsAllOutput, TakesAllInput, NeverTypesEOF, DeafToResizes, KillsAtOnce,
		LeavesChildren, ReservesRefused, PassesCredentials, SharesUtilities, KeepsWatching, WrongScores, NeverTruncated, FollowsLinks,
		ReadsAnywhere, NamelessRefusals, CreatesAreRenames, ReportsAfterStop, ReportsExcluded}
}

// HTTPDefects lists those that show over HTTP and SSE: the ones above, and
// those that sockets have too.
func HTTPDefects() []Defect {
	return []Defect{BareEventIDs, ReplaysOneTooMany, LosesBetween, IgnoresLastEventID, BeginsWithReplay, HeartbeatsWithID,
		NeverBeats, StreamsShare, IgnoresQueryOptOuts, NoEpochHeader, ImplicitDrives, RefusedStays, WrongLeaseCode,
		DeafToHeartbeats, NeverExpires, KeepsLease, TalkativeDisconnect, MintsConnections, ChangesRoles, RoleByHeader,
		AnonymousMayPost, ForgetsKeys, StaleAnswers, CodeIsStatusName, NoRetryAfter, HangsUpOnLarge, WrongMethodNotFound, TrustsPages,
		SilentFutureCursor, IgnoresEpoch, HelloOKToAll, IgnoresOptOuts, ViewerMayPrompt, GrantsLeaseTwice,
		LoserKeepsDriving, TokenNotChecked, ExtraKey, NullOptional, NoTypeCheck, TwoRuns, KeepsRequests}
}

// Defects lists those that show over stdio or on sockets.
func Defects() []Defect {
	return slices.Clone([]Defect{LosesEventOnResume, ReplaysOldItems, SilentFutureCursor, IgnoresEpoch, WrongSnapshotCursor,
		HelloOKToAll, IgnoresOptOuts, ViewerMayPrompt, GrantsLeaseTwice, LoserKeepsDriving, SilentTakeover, SameGeneration,
		AcceptsSecondAnswer, NoTypeCheck, RequestTwice, AbsentApproves, KeepsRequests, LeaksRequests, ResultBeforeEvents,
		RunsRepeats, KeepsResponding, WrongTotal, NeverEndsInterrupted, TwoRuns, ExtraKey, NullOptional, FoldsCase,
		AnswersBlankLines, DropsLastLine, WrongExitStatus, TokenNotChecked, WrongCloseCode})
}
