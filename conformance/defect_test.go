package conformance_test

import (
	"slices"
	"testing"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/double"
)

// A catch is where a planted defect must be found: scenarios that suffice, and
// the rules of which one must be named.
type catch struct {
	defect double.Defect
	on     conformance.Transport
	run    string   // scenarios by name
	rules  []string // one of them is what a failure must name
}

var catches = []catch{
	{double.LosesEventOnResume, onSocket, "^resume/(missed-items|from-the-start)$", []string{"A43"}},
	{double.ReplaysOldItems, onSocket, "^resume/(missed-items|nothing-missed)$", []string{"A43", "A48"}},
	{double.SilentFutureCursor, onSocket, "^resume/future-cursor$", []string{"A46"}},
	{double.IgnoresEpoch, onSocket, "^resume/other-epoch$", []string{"A114"}},
	{double.WrongSnapshotCursor, onSocket, "^stream/snapshot-first$", []string{"A48"}},
	{double.HelloOKToAll, onSocket, "^handshake/private-hello-ok$", []string{"A60"}},
	{double.IgnoresOptOuts, onSocket, "^handshake/opted-out-status$", []string{"A53", "R31"}},
	{double.IgnoresOptOuts, onStdio, "^handshake/opt-out-of-everything$", []string{"A53", "R31"}},
	{double.ViewerMayPrompt, onSocket, "^viewer/cannot-prompt$", []string{"A37"}},
	{double.ViewerMayPrompt, onStdio, "^handshake/viewer-sends-hello-only$", []string{"R28"}},
	{double.GrantsLeaseTwice, onSocket, "^lease/second-refused$", []string{"A23", "A34"}},
	{double.GrantsLeaseTwice, onSocket, "^lease/concurrent$", []string{"A33"}},
	{double.LoserKeepsDriving, onSocket, "^lease/loser-refused$", []string{"A27"}},
	{double.SilentTakeover, onSocket, "^lease/takeover$", []string{"A115"}},
	{double.SameGeneration, onSocket, "^handover/generations$", []string{"D7"}},
	{double.AcceptsSecondAnswer, onStdio, "^request/second-answer$", []string{"R52", "R53"}},
	{double.NoTypeCheck, onSocket, "^request/type-mismatch$", []string{"R60", "R52"}},
	{double.RequestTwice, onStdio, "^request/approval-announced$", []string{"R50"}},
	{double.AbsentApproves, onStdio, "^request/absent-denies$", []string{"R54"}},
	{double.KeepsRequests, onStdio, "^interrupt/cancels-requests$", []string{"R66"}},
	{double.KeepsRequests, onSocket, "^interrupt/snapshot$", []string{"A69"}},
	{double.LeaksRequests, onSocket, "^request/other-session$", []string{"R64"}},
	{double.ResultBeforeEvents, onSocket, "^answer/after-its-effects$", []string{"2.5"}},
	{double.RunsRepeats, onSocket, "^answer/idempotent$", []string{"A72"}},
	{double.KeepsResponding, onSocket, "^(run/responding|state/replay)$", []string{"R36", "R79"}},
	{double.WrongTotal, onStdio, "^run/response$", []string{"R38"}},
	{double.NeverEndsInterrupted, onStdio, "^interrupt/ends-run$", []string{"R37"}},
	{double.TwoRuns, onStdio, "^run/busy$", []string{"R42"}},
	{double.ExtraKey, onSocket, "^stream/snapshot-first$", []string{"A47"}},
	{double.NullOptional, onSocket, "^state/fresh$", []string{"A47"}},
	{double.FoldsCase, onStdio, "^framing/exact-case$", []string{"R11"}},
	{double.AnswersBlankLines, onStdio, "^framing/blank-lines$", []string{"R4"}},
	{double.DropsLastLine, onStdio, "^framing/last-line$", []string{"R3"}},
	{double.WrongExitStatus, onStdio, "^shutdown/exit$", []string{"R18"}},
	{double.TokenNotChecked, onSocket, "^resume/wrong-token$", []string{"9.3"}},
	{double.WrongCloseCode, onSocket, "^socket/not-json$", []string{"9.5"}},

	{double.ReordersOutput, onStdio, "^output/large$", []string{"5.1"}},
	{double.ExitsEarly, onSocket, "^output/before-exit$", []string{"R84"}},
	{double.ExitsEarly, onSocket, "^tree/late-words$", []string{"R84", "5.1"}},
	{double.CutsCharacters, onSocket, "^output/cut-characters$", []string{"R93"}},
	{double.CutsCharacters, onHTTP, "^terminal/cut-characters$", []string{"R93"}},
	{double.KeepsAllOutput, onSocket, "^output/in-state$", []string{"R78"}},
	{double.TakesAllInput, onStdio, "^(stdin|terminal)/not-enabled$", []string{"R88"}},
	{double.NeverTypesEOF, onSocket, "^terminal/end-of-input$", []string{"R89"}},
	{double.DeafToResizes, onStdio, "^terminal/resize$", []string{"R91"}},
	{double.KillsAtOnce, onSocket, "^(terminate/asks-first|terminal/terminate)$", []string{"5.1", "R86"}},
	{double.LeavesChildren, onSocket, "^tree/(terminated|background)$", []string{"R87", "R86", "5.1"}},
	{double.ReservesRefused, onHTTP, "^command/bad-(line|cwd|words)$", []string{"5.1", "R92"}},
	{double.PassesCredentials, onStdio, "^command/no-credentials$", []string{"5.1"}},
	{double.SharesUtilities, onSocket, "^owner/(commands|watches)$", []string{"A29"}},
	{double.KeepsWatching, onSocket, "^reason/interrupt$", []string{"3.5"}},
	{double.WrongScores, onHTTP, "^search/(scores|whole-path)$", []string{"R95"}},
	{double.NeverTruncated, onSocket, "^(search/limit|read/window)$", []string{"R95", "R96"}},
	{double.FollowsLinks, onStdio, "^search/links$", []string{"5.2"}},
	{double.ReadsAnywhere, onSocket, "^read/(links|traversal)$", []string{"R94"}},
	{double.NamelessRefusals, onStdio, "^(read/missing|command/bad-line)$", []string{"R97", "5.1"}},
	{double.CreatesAreRenames, onSocket, "^watch/create$", []string{"R99"}},
	{double.ReportsAfterStop, onHTTP, "^watch/stopped$", []string{"R99"}},
	{double.ReportsExcluded, onSocket, "^watch/built-in-excludes$", []string{"R99"}},

	{double.BareEventIDs, onHTTP, "^sse/framing$", []string{"1.11"}},
	{double.ReplaysOneTooMany, onHTTP, "^return/(missed-items|nothing-missed)$", []string{"A43", "A48"}},
	{double.LosesBetween, onHTTP, "^return/(under-load|missed-items)$", []string{"A43", "A49"}},
	{double.IgnoresLastEventID, onHTTP, "^return/(last-event-id|foreign-event-id)$", []string{"A59"}},
	{double.BeginsWithReplay, onHTTP, "^sse/snapshot-first$", []string{"A42"}},
	{double.HeartbeatsWithID, onHTTP, "^sse/heartbeat$", []string{"1.11"}},
	{double.NeverBeats, onHTTP, "^sse/(heartbeat|keepalive)$", []string{"A57", "1.11"}},
	{double.StreamsShare, onHTTP, "^sse/newer-wins$", []string{"A61"}},
	{double.IgnoresQueryOptOuts, onHTTP, "^sse/(opt-outs|unknown-opt-out)$", []string{"R31", "A56"}},
	{double.NoEpochHeader, onHTTP, "^return/own-epoch$", []string{"1.11"}},
	{double.ImplicitDrives, onHTTP, "^claim/implicit-stream$", []string{"A36"}},
	{double.RefusedStays, onHTTP, "^claim/refused-leaves-no-trace$", []string{"A24"}},
	{double.WrongLeaseCode, onHTTP, "^(claim/second-refused|refusal/lease-details)$", []string{"A23", "A34"}},
	{double.DeafToHeartbeats, onHTTP, "^heartbeat/renews$", []string{"A32"}},
	{double.NeverExpires, onHTTP, "^claim/expires$", []string{"A31"}},
	{double.KeepsLease, onHTTP, "^disconnect/controller$", []string{"A15"}},
	{double.TalkativeDisconnect, onHTTP, "^disconnect/exact$", []string{"A13"}},
	{double.MintsConnections, onHTTP, "^connection/unknown$", []string{"A5"}},
	{double.ChangesRoles, onHTTP, "^connection/role-is-fixed$", []string{"A18"}},
	{double.RoleByHeader, onHTTP, "^watcher/(role-header|cannot-drive)$", []string{"A38", "A39"}},
	{double.AnonymousMayPost, onHTTP, "^claim/nameless$", []string{"A35"}},
	{double.ForgetsKeys, onHTTP, "^post/idempotent$", []string{"A72"}},
	{double.ForgetsKeys, onHTTP, "^session/idempotent$", []string{"1.7"}},
	{double.StaleAnswers, onHTTP, "^post/answer$", []string{"1.12"}},
	{double.CodeIsStatusName, onHTTP, "^refusal/details$", []string{"A73"}},
	{double.NoRetryAfter, onHTTP, "^refusal/retry-after$", []string{"A74"}},
	{double.HangsUpOnLarge, onHTTP, "^refusal/too-large$", []string{"A75"}},
	{double.WrongMethodNotFound, onHTTP, "^route/wrong-method$", []string{"1.1"}},
	{double.TrustsPages, onHTTP, "^route/foreign-(page|host)$", []string{"D10"}},
	{double.SilentFutureCursor, onHTTP, "^return/future-cursor$", []string{"A46"}},
	{double.IgnoresEpoch, onHTTP, "^return/(other-epoch|foreign-event-id)$", []string{"1.11", "A59"}},
	{double.HelloOKToAll, onHTTP, "^sse/private-hello-ok$", []string{"A60"}},
	{double.IgnoresOptOuts, onHTTP, "^sse/opt-outs$", []string{"R31", "A53"}},
	{double.ViewerMayPrompt, onHTTP, "^watcher/cannot-prompt$", []string{"A37"}},
	{double.GrantsLeaseTwice, onHTTP, "^claim/(second-refused|concurrent)$", []string{"A23", "A33"}},
	{double.LoserKeepsDriving, onHTTP, "^claim/loser-refused$", []string{"A27"}},
	{double.TokenNotChecked, onHTTP, "^token/(wrong|of-another)$", []string{"8.1", "A40"}},
	{double.ExtraKey, onHTTP, "^sse/same-for-all$", []string{"A47"}},
	{double.NullOptional, onHTTP, "^connection/created$", []string{"1.6"}},
	{double.NoTypeCheck, onHTTP, "^post/request-type-mismatch$", []string{"1.12"}},
	{double.TwoRuns, onHTTP, "^post/(busy|prompts-at-once)$", []string{"A71"}},
	{double.KeepsRequests, onHTTP, "^post/interrupt$", []string{"A69"}},

	{double.HidesTools, onStdio, "^offer/(announced|called)$", []string{"3.1"}},
	{double.HidesTools, onHTTP, "^offer/announced$", []string{"3.1"}},
	{double.KeepsTools, onStdio, "^offer/announced$", []string{"R29"}},
	{double.KeepsTools, onSocket, "^offer/take-over$", []string{"D8"}},
	{double.KeepsTools, onHTTP, "^offer/take-over$", []string{"D8"}},
	{double.ViewersTools, onSocket, "^offer/of-a-viewer$", []string{"R27", "D8"}},
	{double.MalformedTools, onStdio, "^offer/malformed$", []string{"3.1"}},
	{double.MalformedTools, onSocket, "^offer/malformed$", []string{"3.1"}},
	{double.MalformedTools, onHTTP, "^offer/malformed$", []string{"3.1"}},
	{double.UncalledTools, onSocket, "^offer/without-capability$", []string{"3.1"}},
	{double.LoserKeepsDriving, onSocket, "^offer/take-over$", []string{"A27"}},
	{double.AcceptsSecondAnswer, onStdio, "^offer/called$", []string{"R52", "R53"}},
}

// Where a defect shows.
const (
	onStdio  = conformance.Stdio
	onSocket = conformance.Socket
	onHTTP   = conformance.HTTP
)

// targets start the double with a defect.
var targets = map[conformance.Transport]func(*testing.T, double.Defect) string{
	onStdio: stdioTarget, onSocket: socketTarget, onHTTP: httpTarget,
}

func TestEachPlantedDefectIsCaught(t *testing.T) {
	t.Parallel()
	for _, c := range catches {
		t.Run(string(c.on)+"/"+string(c.defect)+"/"+c.run, func(t *testing.T) {
			t.Parallel()
			c.catches(t, conformance.Config{Target: targets[c.on](t, c.defect)})
		})
	}
}

func TestEveryDefectIsInTheTable(t *testing.T) {
	for _, d := range double.Defects() {
		if !slices.ContainsFunc(catches, func(c catch) bool { return c.defect == d && c.on != onHTTP }) {
			t.Errorf("defect %s is planted, but no test wants it caught", d)
		}
	}
	for _, d := range slices.Concat(double.UtilityDefects(), double.ToolDefects()) {
		if !slices.ContainsFunc(catches, func(c catch) bool { return c.defect == d }) {
			t.Errorf("defect %s is planted, but no test wants it caught", d)
		}
	}
	for _, d := range double.HTTPDefects() {
		if !slices.ContainsFunc(catches, func(c catch) bool { return c.defect == d && c.on == onHTTP }) {
			t.Errorf("defect %s is planted, but no test wants it caught over HTTP", d)
		}
	}
}
