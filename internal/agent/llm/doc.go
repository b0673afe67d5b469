// Package llm is the built-in agent: a loop in which a model works in a workspace with
// tools, for the clients of a session.
//
// # Promises
//
//   - The history is valid at any time. Roles alternate, and every call has exactly
//     one result in the message after it. A conversation can go on after a failure of
//     the provider, an interrupt or the death of the process. The history has every
//     text that a client was shown.
//   - The agent writes each step to [Options.StateDir] before it acts on it. A new
//     Agent with the same directory goes on from there.
//   - A call that changes something runs only if a rule or a client allows it. A
//     rule that denies holds in every approval mode. Clients see arguments without
//     what looks like a credential.
//   - The agent never makes up an answer of a person. The model learns if there was
//     none.
//   - Everything is bounded: the turns of a run, the retries, the results that the
//     model gets, and the conversation, which is summarised before it outgrows the
//     model's context.
//
// # Limits
//
//   - Rules are guard rails and no sandbox. They judge a command by its line, and a
//     program may start others. A person is asked about a line that cannot be read.
//   - Nothing is synced to disk: a crash of the machine may lose the end of a history.
//   - Only one process may use a StateDir. The package does not check that.
//   - A call that was running when the process died does not run again by itself. The
//     model is told that its effect is not known.
//
// # Steering
//
// Between two turns of the model, a run takes the prompts with which users steer it. The
// model gets them with its next request. A run that was about to end goes on with them.
//
// # Remembered answers
//
// The answer to an approval may hold for the rest of the session. The client says so
// with a JSON object in a text block of the answer's content, or in its reason:
//
//	{"remember":"session"}
//	{"remember":"session","rule":"bash(go test:*)"}
//
// An approval becomes a rule that allows, a denial one that denies: without a rule,
// one about exactly this command line or path. The rule must match the call, and never
// overrides an operator's rule that denies. A yes with an object that cannot be read
// runs nothing. The prompts /rules and /forget RULE show the remembered rules and take
// one back, without the model.
package llm
