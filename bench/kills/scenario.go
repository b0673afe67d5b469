package main

// The prompts of the script, and the tool that its question is about.
const (
	promptStream = "stream"
	promptAsk    = "ask"
)

// streamRate is how many events a second a stream has: slow enough for
// everybody to keep up on a busy machine, fast enough for a hundred streams.
const streamRate = 10_000

// lingerMS keeps a stream's run going after its last event, so that it is
// always cut by the kill. A run that ends cancels the questions that wait.
const lingerMS = 30_000

type object map[string]any

// scenario is the script of the agent: a steady stream of words, all different,
// and a question that waits for ever.
func scenario(events int) object {
	return object{"keeps_questions": true, "prompts": []object{
		{"match": promptStream, "steps": []object{
			{"repeat": object{"times": events, "rate": streamRate, "steps": []object{{"say": "word-{{n}} "}}}},
			{"delay_ms": lingerMS},
		}},
		{"match": promptAsk, "steps": []object{
			{"ask": object{"type": "approval", "tool": "deploy", "args": object{}, "reason": "Is anybody there?", "timeout_ms": -1}},
		}},
	}}
}
