package conformance_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/double"
)

// A catch is where a planted defect must be found: scenarios that suffice, and
// the rules of which one must be named.
type catch struct {
	defect double.Defect
	stdio  bool
	run    string   // scenarios by name
	rules  []string // one of them is what a failure must name
}

var catches = []catch{
	{double.LosesEventOnResume, false, "^resume/(missed-items|from-the-start)$", []string{"A43"}},
	{double.ReplaysOldItems, false, "^resume/(missed-items|nothing-missed)$", []string{"A43", "A48"}},
	{double.SilentFutureCursor, false, "^resume/future-cursor$", []string{"A46"}},
	{double.IgnoresEpoch, false, "^resume/other-epoch$", []string{"A114"}},
	{double.WrongSnapshotCursor, false, "^stream/snapshot-first$", []string{"A48"}},
	{double.HelloOKToAll, false, "^handshake/private-hello-ok$", []string{"A60"}},
	{double.IgnoresOptOuts, false, "^handshake/opted-out-status$", []string{"A53", "R31"}},
	{double.IgnoresOptOuts, true, "^handshake/opt-out-of-everything$", []string{"A53", "R31"}},
	{double.ViewerMayPrompt, false, "^viewer/cannot-prompt$", []string{"A37"}},
	{double.ViewerMayPrompt, true, "^handshake/viewer-sends-hello-only$", []string{"R28"}},
	{double.GrantsLeaseTwice, false, "^lease/second-refused$", []string{"A23", "A34"}},
	{double.GrantsLeaseTwice, false, "^lease/concurrent$", []string{"A33"}},
	{double.LoserKeepsDriving, false, "^lease/loser-refused$", []string{"A27"}},
	{double.SilentTakeover, false, "^lease/takeover$", []string{"A115"}},
	{double.SameGeneration, false, "^handover/generations$", []string{"D7"}},
	{double.AcceptsSecondAnswer, true, "^request/second-answer$", []string{"R52", "R53"}},
	{double.NoTypeCheck, false, "^request/type-mismatch$", []string{"R60", "R52"}},
	{double.RequestTwice, true, "^request/approval-announced$", []string{"R50"}},
	{double.AbsentApproves, true, "^request/absent-denies$", []string{"R54"}},
	{double.KeepsRequests, true, "^interrupt/cancels-requests$", []string{"R66"}},
	{double.KeepsRequests, false, "^interrupt/snapshot$", []string{"A69"}},
	{double.LeaksRequests, false, "^request/other-session$", []string{"R64"}},
	{double.ResultBeforeEvents, false, "^answer/after-its-effects$", []string{"2.5"}},
	{double.RunsRepeats, false, "^answer/idempotent$", []string{"A72"}},
	{double.KeepsResponding, false, "^(run/responding|state/replay)$", []string{"R36", "R79"}},
	{double.WrongTotal, true, "^run/response$", []string{"R38"}},
	{double.NeverEndsInterrupted, true, "^interrupt/ends-run$", []string{"R37"}},
	{double.TwoRuns, true, "^run/busy$", []string{"R42"}},
	{double.ExtraKey, false, "^stream/snapshot-first$", []string{"A47"}},
	{double.NullOptional, false, "^state/fresh$", []string{"A47"}},
	{double.FoldsCase, true, "^framing/exact-case$", []string{"R11"}},
	{double.AnswersBlankLines, true, "^framing/blank-lines$", []string{"R4"}},
	{double.DropsLastLine, true, "^framing/last-line$", []string{"R3"}},
	{double.WrongExitStatus, true, "^shutdown/exit$", []string{"R18"}},
	{double.TokenNotChecked, false, "^resume/wrong-token$", []string{"9.3"}},
	{double.WrongCloseCode, false, "^socket/not-json$", []string{"9.5"}},
}

func TestEachPlantedDefectIsCaught(t *testing.T) {
	t.Parallel()
	for _, c := range catches {
		t.Run(string(c.defect)+"/"+c.run, func(t *testing.T) {
			t.Parallel()
			target := socketTarget
			if c.stdio {
				target = stdioTarget
			}
			report := judge(t, conformance.Config{Target: target(t, c.defect),
				Filter: regexp.MustCompile(c.run), Patience: 1500 * time.Millisecond})
			if report.Count(conformance.Failed) == 0 {
				t.Fatalf("got no failure, want one of %v", c.rules)
			}
			for _, result := range report.Results {
				if f := result.Failure; f != nil && !slices.Contains(c.rules, f.Rule) {
					t.Errorf("%s: got rule %s (%s), want one of %v", result.Name, f.Rule, f.Message, c.rules)
				} else if f != nil && len(f.Exchange) == 0 {
					t.Errorf("%s: got no exchange with the failure", result.Name)
				}
			}
		})
	}
}

func TestEveryDefectIsInTheTable(t *testing.T) {
	for _, d := range double.Defects() {
		if !slices.ContainsFunc(catches, func(c catch) bool { return c.defect == d }) {
			t.Errorf("defect %s is planted, but no test wants it caught", d)
		}
	}
}
