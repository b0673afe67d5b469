// Package localmodel is a model server without a model: it speaks the wire forms
// of Anthropic Messages, OpenAI Responses and OpenAI Chat Completions, streaming
// and not, and answers by a script or by what the prompt tells it to do. It is
// for tests, and for trying Maestro or any agent without a key.
//
//	POST /v1/messages                Anthropic Messages
//	POST /v1/messages/count_tokens
//	POST /v1/responses               OpenAI Responses
//	POST /v1/chat/completions        OpenAI Chat Completions
//	GET  /v1/models, /v1/models/ID   in the form of who asks
//
// Fields of requests that it does not know are ignored, and any credentials will
// do. Histories are held to the rules of the services: calls without results,
// results without calls, empty texts and thinking that was changed on the way
// are refused in the words of the service, so that an agent which leaves a broken
// history behind is found out here.
//
// It keeps no conversation. Which turn of a script is next follows from how many
// times the model has spoken since the last prompt of the conversation it is
// sent. The same request is answered with the same ids.
//
// # Prompts
//
// Without a script, a prompt whose first line is a command is a program: one
// command a line, and a line that is none belongs to the text above it.
//
//	say TEXT            speak
//	think TEXT          think, before speaking
//	call TOOL {JSON}    call a tool, with {} if nothing is given; several names
//	                    may be given as a|b, and the first that is offered is used
//	fault KIND [TIMES]  fail in this turn, so many times (0: always; absent: once)
//	stop REASON         end the turn with the reason length or refused
//	then                the next turn begins
//
// A turn with calls ends where something else than a call follows. When the last
// turn made calls, one more says what the last result was; so does a turn in which
// nothing is said. USE_TOOL anywhere in a
// prompt calls the first tool on offer that runs commands, with a harmless echo,
// and then says what came of it. Anything else is said back.
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
// The first case applies whose match is in the last prompt and whose regexp, if it
// has one, matches it. Prompts without a case are treated as above if there is no default.
package localmodel
