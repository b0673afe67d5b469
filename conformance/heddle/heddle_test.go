//go:build unix

package heddle_test

import (
	"testing"

	"github.com/seed-028515a8/maestro/conformance/heddle"
	"github.com/seed-028515a8/maestro/internal/testkit/suitetest"
)

func TestMain(m *testing.M) { suitetest.Main(m, serve) }

func TestCorrectServerPasses(t *testing.T) { suitetest.CorrectServerPasses(t, heddle.Suite()) }

func TestEveryScenarioCanFail(t *testing.T) {
	suitetest.EveryScenarioCanFail(t, heddle.Suite(), faults)
}

func TestEveryRuleHasAScenario(t *testing.T) {
	suitetest.EveryRuleHasAScenario(t, heddle.Suite(), "H", 40)
}

// faults are those of the fake, and the scenarios that each must break.
var faults = map[string]string{
	"banner":               "init/silent-start",
	"blank-lines":          "line/objects",
	"init-twice":           "init/answer",
	"one-session":          "init/sessions-differ",
	"exit-0":               "init/other-major",
	"picky":                "init/other-minor",
	"eager":                "init/first",
	"deaf-to-junk":         "line/not-json",
	"other-words":          "line/not-a-request",
	"lenient":              "line/bad-requests",
	"strict":               "line/unknown-fields",
	"from-one":             "event/numbers",
	"numbers-go-on":        "event/numbers-restart",
	"late-event":           "event/before-result",
	"silent-cancel":        "result/once",
	"other-response":       "result/response",
	"no-beats":             "heartbeat/running",
	"idle-beats":           "heartbeat/idle",
	"fast-default":         "heartbeat/default",
	"no-tool-end":          "tool/pairs",
	"calls-reversed":       "tool/calls-made",
	"forgets-calls":        "tool/interrupted-call",
	"long-preview":         "tool/preview",
	"any-tool":             "tool/allow-list",
	"no-loops":             "tool/loop",
	"permission-forgotten": "tool/permission",
	"counts-all":           "status/counts",
	"eof-aborts":           "end/input",
	"hasty":                "end/all-at-once",
	"nameless":             "result/names",
	"other-message":        "result/model-fails",
	"odd-latency":          "result/latencies",
	"deaf-to-cancel":       "cancel/running",
	"cancel-ok":            "cancel/no-answer",
	"forgets-cancels":      "cancel/waiting",
	"orphans":              "cancel/tool",
	"stuck":                "cancel/next",
	"endless":              "config/max-iterations",
	"relative-root":        "config/isolated",
	"all-new":              "config/older-version",
	"extra-key":            "golden/normal golden/cancel golden/version-mismatch",
	"no-failure":           "golden/error",
}
