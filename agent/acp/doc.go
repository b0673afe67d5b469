// Package acp is the agent that puts any program which speaks the Agent Client
// Protocol behind a session: it starts the program, is its client, and turns
// what it says into the events of the hub.
//
// It promises that a conversation survives the end of the program: the next prompt
// starts it again and has it load or resume the session it had, whose history is
// not shown a second time. It promises that no process, terminal or goroutine of
// the program outlives [Agent.Close], that files and terminals are served inside
// the workspace only, that nothing is written or run for the program outside of a
// run, and that a program which crashes, hangs or talks nonsense costs a run and
// never the session.
//
// # Calls
//
// What the program calls a tool call is one call here, announced once. A call
// that has not begun is held back for a moment, because a question about it may
// follow that announces it with its approval. A question about a call that was
// announced already is one more tool_call of the same id that requires approval. The
// call goes on meanwhile, and the program tells how it ends. Questions about one
// call are asked one after the other.
//
// The args of a call are the tool's own with one more key, "_acp":
//
//	{"title": "...", "kind": "edit", "locations": [{"path": "...", "line": 3}],
//	 "diff": "...", "options": [{"id": "...", "name": "...", "kind": "allow_once"}]}
//
// diff and options are there when approval is asked. An input that is not an object
// stands under "input"; one that is too long is left out, with "omitted_bytes"
// in "_acp". Args are masked as those of every agent. Titles, names and paths that
// are too long end with "…", and an id of an option is a digest then. If anything
// was cut of what approval is asked for, the reason of the question says what.
//
// # Answers to approvals
//
// An approval is an allow_once, a denial a reject_once, whatever their ids are. An
// answer may say more as JSON, in a text block or as its reason, as [contracts.AnswerNote]
// does: {"remember":"session"} prefers allow_always or reject_always,
// {"option_id":"..."} names an option. Where the program offers an answer only for
// more than one call, that one is taken, and the question says so. An option that
// allows is never taken for a denial.
//
// # What else is said
//
// A plan, the commands and modes of the program and how full its context is are
// statuses: they are about the run, not part of an answer. The cost of a session
// is shared out to the responses that ended since it was last told.
package acp
