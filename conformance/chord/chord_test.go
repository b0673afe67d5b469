//go:build unix

package chord_test

import (
	"testing"

	"github.com/seed-028515a8/maestro/conformance/chord"
	"github.com/seed-028515a8/maestro/internal/testkit/suitetest"
)

func TestMain(m *testing.M) { suitetest.Main(m, serve) }

func TestCorrectServerPasses(t *testing.T) { suitetest.CorrectServerPasses(t, chord.Suite()) }

func TestEveryScenarioCanFail(t *testing.T) { suitetest.EveryScenarioCanFail(t, chord.Suite(), faults) }

func TestEveryRuleHasAScenario(t *testing.T) {
	suitetest.EveryRuleHasAScenario(t, chord.Suite(), "C", 46)
}

// faults are those of the fake, and the scenarios that each must break.
var faults = map[string]string{
	"banner":            "start/ready",
	"no-payload":        "line/envelopes",
	"mute":              "subscribe/default",
	"deliver-all":       "subscribe/one",
	"adds":              "subscribe/replace",
	"unknown-is-all":    "subscribe/unknown",
	"empty-is-all":      "subscribe/nothing",
	"bad-resets":        "subscribe/bad",
	"deaf-to-lists":     "line/not-an-object",
	"empty-is-bad":      "line/empty",
	"other-words":       "line/unknown-type",
	"strict":            "line/unknown-members",
	"any-length":        "line/too-long",
	"always-busy":       "status/first",
	"never-busy":        "status/streaming",
	"hides-pending":     "status/always",
	"models-ok":         "models/commands",
	"models-differ":     "models/message",
	"local-to-model":    "send/local-only",
	"two-idles":         "turn/text",
	"no-empty-message":  "turn/rounds",
	"late-message":      "turn/message-first",
	"idle-activity":     "turn/activities",
	"idle-each":         "turn/while-busy",
	"never-failed":      "turn/model-fails",
	"todos-text":        "turn/todos",
	"unmarked":          "turn/long-text",
	"pending-stays":     "confirm/status",
	"deny-runs":         "confirm/allow-deny",
	"any-id":            "confirm/other-id",
	"bad-scope-allows":  "confirm/bad-scope",
	"no-rules":          "rule/session",
	"keeps-all":         "rule/forgotten",
	"keeps-none":        "rule/project rule/global",
	"first-args":        "confirm/final-args confirm/bad-final-args",
	"answers-sorted":    "question/multiple",
	"cancel-ends":       "question/cancelled",
	"send-allows":       "pending/confirm",
	"question-waits":    "pending/question",
	"confirm-waits":     "pending/both",
	"refused-dismisses": "pending/refused-message",
	"partial":           "cancel/streaming",
	"cancel-keeps":      "cancel/pending",
	"taints":            "cancel/idle",
	"stuck":             "cancel/next",
	"exit-3":            "end/idle",
	"drains":            "end/streaming",
	"orphans":           "end/tool",
	"starts-anyway":     "start/failure",
	"new-id":            "resume/known",
	"resumes-any":       "resume/unknown",
}
