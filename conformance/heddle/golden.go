package heddle

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/conformance/lines"
)

// golden holds the recorded transcripts: NAME.in.jsonl is written all at once,
// NAME.out.jsonl is what the server answers.
//
//go:embed golden
var golden embed.FS

// transcripts are the recorded transcripts, with what the model answers in each.
func transcripts() []conformance.Scenario {
	listing := []lines.Reply{{Calls: []lines.Call{glob("*")}},
		{Text: "Here are the files...", Usage: []int{42, 15, 57}, ID: "chatcmpl-test"}}
	return []conformance.Scenario{
		transcript("normal", "A tool and an answer", func(p *play) { p.Model.On("List files in the current directory.", listing...) }),
		transcript("error", "A failure of the model", func(p *play) {
			p.Model.Always("Do the thing.", lines.Reply{Status: 500, Text: `{"error":{"message":"Model error","type":"error","code":500}}`})
		}),
		transcript("cancel", "A cancelled send", func(p *play) {
			p.Model.Always("Start a long task.", lines.Reply{Text: "Late.", Delay: time.Minute})
		}),
		transcript("version-mismatch", "A client of another major version", func(*play) {}),
	}
}

func transcript(name, title string, prepare func(*play)) conformance.Scenario {
	return unstarted("golden/"+name, "H39", title+" is written as recorded", func(p *play) {
		prepare(p)
		input, want := recorded(name, "in"), recorded(name, "out")
		c := p.start()
		c.Text(input)
		var got []lines.Line
		c.Try(p.Long(), func(l lines.Line) bool {
			if l.Str("event.event") != "turn_state" {
				got = append(got, l)
			}
			return len(got) == strings.Count(want, "\n")
		})
		if name == "normal" {
			p.Offered("List files in the current directory.", "glob")
		}
		p.compare(got, want)
	})
}

func recorded(name, direction string) string {
	text, err := golden.ReadFile("golden/" + name + "." + direction + ".jsonl")
	if err != nil {
		panic(err) // the file is embedded
	}
	return strings.TrimSuffix(string(text), "\n") + "\n"
}

// compare expects the lines to be those of a transcript but for what differs from run to run.
func (p *play) compare(got []lines.Line, want string) {
	at := 0
	for text := range strings.Lines(want) {
		p.FailIf(at == len(got), "expected line %d to be %s, got no more lines within %s",
			at+1, strings.TrimSpace(text), p.Long())
		var wanted object
		if err := json.Unmarshal([]byte(text), &wanted); err != nil {
			panic(err) // the file is embedded
		}
		for _, path := range varying {
			drop(wanted, path)
			drop(got[at].Body, path)
		}
		p.FailIf(!reflect.DeepEqual(got[at].Body, wanted), "expected line %d to be %s, got %s; it differs in: %s",
			at+1, strings.TrimSpace(text), got[at], strings.Join(difference(got[at].Body, wanted), ", "))
		at++
	}
}

// varying are the paths that a comparison leaves out.
var varying = []string{
	"session_id", "timestamp", "usage.prompt_tokens", "usage.completion_tokens", "usage.total_tokens",
	"event.result_preview", "event.details", "event.provider", "task_id", "worker_id",
	"model_latency_ms", "tool_latency_ms", "total_latency_ms", "protocol_version", "capabilities", "profile",
	"error.details.provider", "failure.provider", "failure.cancellation_source", "event_seq", "tool_calls_made.id",
}

// drop removes what is at a path. A list on the way stands for each of its items.
func drop(value any, path string) {
	key, rest, more := strings.Cut(path, ".")
	switch value := value.(type) {
	case object:
		if !more {
			delete(value, key)
			return
		}
		drop(value[key], rest)
	case []any:
		for _, item := range value {
			drop(item, path)
		}
	}
}

// difference names the members in which two objects differ.
func difference(got, want object) []string {
	all := maps.Clone(want)
	maps.Copy(all, got)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !reflect.DeepEqual(got[name], want[name]) {
			text, _ := json.Marshal(got[name]) // it was JSON
			names = append(names, fmt.Sprintf("%s (%s)", name, text))
		}
	}
	return names
}
