// Package localmodel is a model server without a model, for tests and for trying
// Maestro or an agent without a key. It serves the wire forms of Anthropic
// Messages, OpenAI Responses and OpenAI Chat Completions, with and without
// streaming. A script or the prompt itself says what it answers.
//
//	POST /v1/messages                Anthropic Messages
//	POST /v1/messages/count_tokens
//	POST /v1/responses               OpenAI Responses
//	POST /v1/chat/completions        OpenAI Chat Completions
//	GET  /v1/models, /v1/models/ID   in the form of the client's service
//
// The server ignores unknown fields of a request and accepts any credentials. It
// checks a history against the rules of the service: it refuses calls without
// results, results without calls, empty texts, and thinking that was changed. The
// refusal has the words of the service. So a test finds an agent that sends a
// broken history.
//
// The server stores no conversation. The number of answers since the last prompt
// in the request decides which turn of a script is next. Equal requests get equal
// IDs.
//
// # Prompts
//
// Without a script, a prompt whose first line is a command is a program. Each
// line is one command; another line belongs to the text above it.
//
//	say TEXT            speak
//	think TEXT          think, before speaking
//	call TOOL {JSON}    call a tool, with {} if nothing is given; several names
//	                    may be given as a|b, and the first that is offered is used
//	fault KIND [TIMES]  fail in this turn, so many times (0: always; absent: once)
//	stop REASON         end the turn with the reason length or refused
//	then                the next turn begins
//
// A turn with calls ends before the next command that is neither call nor stop.
// If the last turn made calls, one more turn says the last result; a turn
// without a text says it, too. A prompt that contains USE_TOOL calls the first
// offered tool that runs commands, with a harmless echo, and then says the
// result. Any other prompt is repeated in the answer.
//
// # Scripts
//
// A script is a JSON object; docs/local-model.md describes it for users.
//
//	{"cases": [
//	  {"match": "fix the bug", "turns": [
//	    {"thinking": "Let me look.", "text": "I will look.",
//	     "calls": [{"any": [{"tool": "read", "args": {"path": "a.go"}},
//	                        {"tool": "Read", "args": {"file_path": "a.go"}}]}]},
//	    {"text": "It says {{result}}.", "fault": {"kind": "overloaded", "times": 2}}]}],
//	 "default": {"turns": [{"text": "Hello."}]}}
//
// The first case applies whose match is a part of the last prompt and whose
// regexp, if it has one, matches the prompt. A prompt without a case gets the
// default. If there is no default, it is handled as without a script.
package localmodel
