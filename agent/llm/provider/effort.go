package provider

import (
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// A version is the two numbers in a model's name; zero if it has none.
type version struct{ major, minor int }

func (v version) least(major, minor int) bool {
	return v.major > major || v.major == major && v.minor >= minor
}

// versionOf reads the version out of a name such as claude-opus-4-6-20260101,
// claude-3-7-sonnet or gpt-5.2-codex. Numbers of more than two digits are dates.
func versionOf(name string) version {
	var found []int
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return r < '0' || r > '9' }) {
		n, err := strconv.Atoi(word)
		if err != nil || len(word) > 2 || len(found) == 2 {
			break
		}
		found = append(found, n)
	}
	switch len(found) {
	case 0:
		return version{}
	case 1:
		return version{found[0], 0}
	}
	return version{found[0], found[1]}
}

// claude is what a model of Anthropic takes, judged by its name. A name without a
// version, as gateways have them, is taken for a current model.
type claude struct {
	adaptive bool   // it decides how much to think, given an effort
	budget   bool   // it thinks within a budget of tokens
	most     string // the highest effort
	length   int64  // of a reply, if nobody says
}

func claudeOf(name string) claude {
	v := versionOf(name)
	switch {
	case v == version{} || v.least(5, 0) || v.least(4, 7):
		return claude{adaptive: true, most: "max", length: 32_000}
	case v.least(4, 6):
		most := "high"
		if strings.Contains(name, "opus") {
			most = "max"
		}
		return claude{adaptive: true, most: most, length: 32_000}
	case v.least(3, 7):
		return claude{budget: true, length: 32_000}
	}
	return claude{length: 4096}
}

// effort is the word for an effort, or none for the model's own choice.
func (c claude) effort(e model.Effort) string {
	switch e {
	case model.EffortMinimal, model.EffortLow:
		return "low"
	case model.EffortMedium:
		return "medium"
	case model.EffortHigh:
		return "high"
	case model.EffortUltra:
		return c.most
	}
	return ""
}

// tokens is the budget for an effort in a reply of length tokens: at least 1,024
// and leaving room for an answer, or zero for none.
func (c claude) tokens(e model.Effort, length int64) int64 {
	wanted := map[model.Effort]int64{
		model.EffortMinimal: 1024, model.EffortLow: 2048, model.EffortMedium: 8192,
		model.EffortHigh: 16_384, model.EffortUltra: 24_000,
	}[e]
	if budget := min(wanted, length-1024); budget >= 1024 {
		return budget
	}
	return 0
}

// reasons reports whether a model of OpenAI's forms reasons, judged by its name.
// One that is not known is taken to, as current models do.
func reasons(name string) bool {
	name = name[strings.LastIndexByte(name, '/')+1:] // gateways put an owner before it
	for _, old := range []string{"gpt-3", "gpt-4", "chatgpt-"} {
		if strings.HasPrefix(name, old) {
			return false
		}
	}
	return true
}

// openaiEffort is the word for an effort, or none for the model's own choice.
// Models differ in the least and the most they take.
func openaiEffort(name string, e model.Effort) string {
	short := name[strings.LastIndexByte(name, '/')+1:]
	v := version{}
	if strings.HasPrefix(short, "gpt-") {
		v = versionOf(short)
	}
	known := v != version{}
	switch e {
	case model.EffortOff:
		switch {
		case known && v.least(5, 1):
			return "none"
		case known && v.major == 5:
			return "minimal"
		}
		return ""
	case model.EffortMinimal:
		if v == (version{5, 0}) {
			return "minimal"
		}
		return "low"
	case model.EffortLow, model.EffortMedium, model.EffortHigh:
		return string(e)
	case model.EffortUltra:
		if known && v.least(5, 2) {
			return "xhigh"
		}
		return "high"
	}
	return ""
}
