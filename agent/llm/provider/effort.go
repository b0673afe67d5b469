package provider

import (
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

var numbers = lazyregexp.New(`[0-9]+`)

// versionOf returns the version in a model's name, such as 406 of
// claude-opus-4-6-20260101, 307 of claude-3-7-sonnet or 502 of gpt-5.2-codex; zero if
// there is none. Numbers of more than two digits are dates.
func versionOf(name string) int {
	version := 0
	for i, digits := range numbers().FindAllString(name, 2) {
		n, err := strconv.Atoi(digits)
		if err != nil || len(digits) > 2 {
			break
		}
		version += n * []int{100, 1}[i]
	}
	return version
}

// claude is what a model of Anthropic takes, by its name. A name without a version
// is an alias of a gateway and taken for a current model.
type claude struct {
	adaptive bool   // it decides how much to think, given an effort
	budget   bool   // it thinks within a budget of tokens
	most     string // the highest effort
	length   int64  // of a reply, if the request does not say
}

func claudeOf(name string) claude {
	switch v := versionOf(name); {
	case v == 0 || v >= 407 || v == 406 && strings.Contains(name, "opus"):
		return claude{adaptive: true, most: "max", length: 32_000}
	case v == 406:
		return claude{adaptive: true, most: "high", length: 32_000}
	case v >= 307:
		return claude{budget: true, length: 32_000}
	}
	return claude{length: 4096}
}

func (c claude) effort(e model.Effort) string {
	switch e {
	case model.EffortMinimal:
		return "low"
	case model.EffortUltra:
		return c.most
	}
	return string(e)
}

// minBudget is the least number of tokens that a model thinks with, and that must
// be left for its answer.
const minBudget = 1024

var thinkingBudgets = map[model.Effort]int64{
	model.EffortMinimal: minBudget, model.EffortLow: 2048, model.EffortMedium: 8192,
	model.EffortHigh: 16_384, model.EffortUltra: 24_000,
}

// withoutOwner returns a model's name without the owner that gateways put before it.
func withoutOwner(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// reasons reports whether a model behind a form of OpenAI reasons, by its name. An
// unknown model is taken to reason, as current models do.
func reasons(name string) bool {
	name = withoutOwner(name)
	return !strings.HasPrefix(name, "gpt-3") && !strings.HasPrefix(name, "gpt-4") && !strings.HasPrefix(name, "chatgpt-")
}

// openaiEffort returns the word for an effort, "" for the model's own choice. The
// lowest and the highest effort depend on the model.
func openaiEffort(name string, e model.Effort) string {
	v := 0
	if name = withoutOwner(name); strings.HasPrefix(name, "gpt-") {
		v = versionOf(name)
	}
	switch {
	case e == model.EffortOff && v >= 501:
		return "none"
	case e == model.EffortOff && v == 500, e == model.EffortMinimal && v == 500:
		return "minimal"
	case e == model.EffortOff:
		return ""
	case e == model.EffortMinimal:
		return "low"
	case e == model.EffortUltra && v >= 502:
		return "xhigh"
	case e == model.EffortUltra:
		return "high"
	}
	return string(e)
}
