// Package acp is the agent that runs a program which speaks the Agent Client
// Protocol behind a session. It starts the program, is its client, and turns
// its messages into the events of the hub.
//
// A conversation survives the end of the program: the next prompt starts the
// program again and makes it load or resume its session, whose history is not
// published a second time. No process, terminal or goroutine of the program
// outlives [Agent.Close]. Files and terminals are served inside the workspace
// only, and nothing is written or run for the program outside a run. A program
// that crashes, hangs or misbehaves costs a run but not the session.
//
// # Calls
//
// A tool call of the program is announced once. A call that has not begun is
// held back for some time, because a question may follow that announces it with
// its approval. A question about an announced call is another tool_call with
// the same id that requires approval; the call goes on meanwhile, and the
// program reports its end. Questions about one call are asked one after the
// other.
//
// The args of a call are the tool's own with one additional key, "_acp":
//
//	{"title": "...", "kind": "edit", "locations": [{"path": "...", "line": 3}],
//	 "diff": "...", "options": [{"id": "...", "name": "...", "kind": "allow_once"}]}
//
// diff and options are present if approval is requested. An input that is not
// an object is under "input". An input that is too long is left out, and "_acp"
// has "omitted_bytes". Args are masked as for every agent. Titles, names and
// paths that are too long end with "…"; an option id that is too long is
// replaced with a digest. If a part of an approval request was cut, the
// question's reason says which. If anything is not shown as the program sent it,
// "_acp" has "whole", a hash over all that the program sent about the call.
//
// docs/agents.md has the meaning of answers to approvals, and of other updates.
package acp
