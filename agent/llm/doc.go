// Package llm provides the agent that is built in: a loop which lets a model of
// some provider work in a workspace with tools, on behalf of a session's
// clients.
//
// # What it promises
//
//   - The history is valid whatever happens. Roles alternate, and every call is
//     answered exactly once in the message after it: a failing provider, an
//     interrupt or the death of the process at any moment leave a conversation
//     that can be continued. What a client was shown of an answer is in it.
//   - Whatever the loop does has been written to [Options.StateDir] before, and
//     a new Agent on the same directory goes on from there.
//   - A call that changes something runs only if a rule or a client allows it. A
//     rule that denies holds in every approval mode. Clients see arguments
//     without what looks like a credential.
//   - A question to a person is answered by a person, or the model is told that
//     it was not.
//   - Everything is bounded: the turns of a prompt, the retries of a failure, what
//     a tool may say to the model, and the conversation, which is summarised before
//     it outgrows the model's context.
//
// # What it does not
//
//   - Rules are guard rails and no sandbox. They judge a command by what can be
//     read off its line, and a program may start others. What they cannot read
//     is asked.
//   - Nothing is synced to disk: the end of a history may be lost with the machine.
//   - One process owns a StateDir. Nothing here keeps a second one out.
//   - A call that was running when the process died is not run again by itself,
//     and whether it had an effect is not known. The model is told so.
//
// # Answers that are remembered
//
// The answer to an approval may hold for the rest of the session. That is said
// beside the decision, as a JSON object in a text block of its content, or in its
// reason:
//
//	{"remember":"session"}
//	{"remember":"session","rule":"bash(go test:*)"}
//
// An approval is remembered as a rule that allows, a denial as one that denies.
// Without a rule exactly this command line or path is meant, if it is denied with
// all below it; a call of a tool that is not ours needs one. A rule must match the call that was asked about, and never
// overrides one of the operator's that denies. Nothing is remembered of a call
// whose arguments were too long to be shown whole.
//
// A status says which rule was made. An approval with an object that cannot be read,
// or has another key, runs nothing. The prompts /rules and /forget RULE show what is
// remembered and take it back, without the model.
package llm
