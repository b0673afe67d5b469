package conformance

import (
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/conformance/shape"
	"github.com/seed-028515a8/maestro/contracts"
)

// An Advice names a rule of this project that a server breaks and that the published
// protocol does not have. It is no failure.
type Advice struct {
	Rule string // such as A46, or the section 1.11
	Text string // what to do, and why
	Seen string // what was expected and what came

	rule string // key in adviceTexts
	ends bool   // it ended the scenario
}

// keepNew drops the advice of a result that an earlier result gave, whose rules are in
// given. A scenario that ended with an advice keeps it.
func (r *Result) keepNew(given map[string]bool) {
	r.Advice = slices.DeleteFunc(r.Advice, func(a Advice) bool {
		again := given[a.rule]
		given[a.rule] = true
		return again && !a.ends
	})
	if r.Outcome == Passed && len(r.Advice) > 0 {
		r.Outcome = Advised
	}
}

// numberOfRule returns the part of a key of adviceTexts that reports show: the number.
func numberOfRule(rule string) string {
	number, _, _ := strings.Cut(rule, ":")
	return number
}

// published reports whether the server is judged by the published protocol alone.
func (s *Session) published() bool { return s.config.Profile == contracts.ProfilePublic }

// isOptional reports whether breaking a rule is met with advice.
func (s *Session) isOptional(rule string) bool { return s.published() && adviceTexts[rule] != "" }

// checkShape fails if there are problems that the published schemas have too, and
// advises about the others.
func (s *Session) checkShape(rule, what string, problems []shape.Problem, shown string) {
	var wrong []shape.Problem
	for _, p := range problems {
		if p.Rule == "" {
			wrong = append(wrong, p)
			continue
		}
		s.advise(p.Rule, "%s: %s in %s", what, p, shown)
	}
	if len(wrong) > 0 {
		s.fail(rule, "%s departs from its shape: %s in %s", what, shape.Join(wrong), shown)
	}
}

// adviceTexts lists the rules that the published protocol does not have, each with
// what to do and why. With the public profile a server that breaks one gets advice
// instead of a failure. A key is the number of a rule or section. If only a part of
// the rule is not published, a colon and a word for that part follow.
//
// All other rules are published: a document states them, the shared suite or a
// test of a published server checks them, or the published servers agree. Where
// the two published servers differ, a server may do as either of them, and the
// rule is here.
var adviceTexts = map[string]string{
	"R4":                 "Skip blank lines. A client that ends its input with one would get an error that answers nothing.",
	"R12:opt-outs":       "Accept a hello that opts out of one notification twice, and name it once in hello_ok. The published schema allows the repetition in a hello and forbids it in the answer.",
	"R13":                "Give input lines a limit, answer a longer one with one error and read on. A client could otherwise fill the memory.",
	"R18:flushed":        "Flush all output before the process ends. The last lines tell a client how its questions ended.",
	"R19:children":       "End the commands of clients when the input ends. Nobody could end them later.",
	"R19:ended":          "End within 5 s when the input ends, also during a run, and cancel what waits. The client is gone.",
	"R24:http":           "Report another protocol version with a status over HTTP too. The status explains why a client misses something.",
	"R33:http":           "Answer init with a status over HTTP too. Other clients see what was changed.",
	"R37":                "End every accepted prompt with a response_end, also after a failure. A client that waits for it would wait forever.",
	"R41":                "Write whole numbers without fraction or exponent. Clients in typed languages read them as integers.",
	"R46:gated":          "Announce a call that needs approval with one tool_call, and start it after the approval. Clients would show work that may never be done.",
	"R50:once":           "Ask each question with one server_request. Clients would ask people twice.",
	"R65":                "Decide the approvals that wait when the approval mode changes to auto or fail. The agent would wait for its timeout.",
	"R73:list":           "Send pending_requests in the state. Clients then find all that waits in one list instead of five.",
	"R78:characters":     "Keep 32,768 characters of a command's output in the state, not as many bytes. Output in other scripts would be shorter.",
	"R87:terminal":       "Kill a command on a terminal that ignores SIGTERM, like any other command. It would keep running.",
	"R93":                "Decode output by character, not by what one read returned. A character that is cut would be replaced by two wrong ones.",
	"R94":                `Keep files and directories inside a workspace, whatever links and paths lead out, and say "outside workspace root". A client could otherwise read the whole machine.`,
	"R95:ranking":        "Rank found files by the published scores, then by path. Clients show the first few of them.",
	"R103":               "Set error_type by the cause of an error, not by words in its text. An error about a field named cancel_x is no cancellation.",
	"A5":                 `Answer an unknown connectionId with 404 "Headless connection not found". A client then connects anew instead of under an id of its choice.`,
	"A16":                "Answer a repeated disconnect with success. A client repeats it if the first answer was lost.",
	"A18":                "Refuse a call that changes the role of a connection. A controller that becomes a viewer would keep the lease.",
	"A21":                "Give a new connection no capabilities and no name of another one. It would be asked what it cannot answer.",
	"A22":                "Make ids of at least 128 random bits. An attacker who guesses one could act for its connection.",
	"A24":                "Remove the connection of a refused controller. Others would see a connection that nobody uses.",
	"A30":                "Give a free lease to the controller that sends the next message. It would otherwise have to subscribe again.",
	"A31":                "Free the lease of a silent controller when it expires. A controller that crashed would block the session.",
	"A32":                "Move lease_expires_at with every heartbeat. Otherwise a client cannot tell whether its heartbeats arrive.",
	"A34":                "Refuse a second controller with the code controller_lease_held. A client takes runtime_owned_elsewhere for another server's session.",
	"A35":                "Refuse a message that names no known connection with 404. Anybody could otherwise drive a session whose lease is free.",
	"A36":                "Give a stream without a subscription no lease. The lease would go when the stream ends.",
	"A40":                "Demand a connection's token of those who act for it. Connection ids are public.",
	"A41":                "Keep the connections of one principal from another. One user could act as another one.",
	"A42:first":          "Begin a stream that was opened without a cursor with a snapshot. The client need not ask for the state first.",
	"A46":                "Answer a cursor beyond the latest one with a reset. The client would drop everything new as old.",
	"A47:additive":       "Send only the keys of the published schemas. Clients that check messages against closed schemas drop the whole message.",
	"A50":                "Replay what is kept without a reset, however long it is. A long replay does not mean that the client is slow.",
	"A52":                "Let no slow client delay another one. One slow reader would stop everybody.",
	"A56:unknown":        "Refuse an unknown word in optOutNotifications. A client that mistypes one gets what it does not want.",
	"A57":                "Send a heartbeat with the latest cursor on an idle stream every 15 s. Clients take silence for a broken connection.",
	"A58":                "Keep a subscription for 30 s after its stream ended, and what it missed. Networks drop connections.",
	"A59":                "Let Last-Event-ID win over the cursor in the query. A browser that reconnects repeats the old query.",
	"A61":                "End the older of two streams on one subscription. Each would otherwise get a part of the events.",
	"A65:words":          `Say "Unknown headless command type" of an unknown message, over HTTP as on standard streams. Clients match the text.`,
	"A71":                "Refuse a prompt during a run with 409 runtime_busy and the known text. A client can tell it from an access that was denied.",
	"A72":                "Honour Idempotency-Key, and refuse one of more than 128 bytes. A prompt whose answer was lost would run twice.",
	"A73":                "Put the same code into code and error_type of every refusal. Clients read one or the other.",
	"A74":                "Send Retry-After with 429 and 503. Clients would all come back at once.",
	"A75":                "Answer a body over the limit with 413 and read on, instead of closing the connection. The client would see a broken connection and try again.",
	"A79":                "Refuse an operation that the sender did not negotiate with unsupported_capability, whatever others negotiated. Its results would come to a client that does not know them.",
	"A83":                "Make one session of creations of one id at the same time. One of two would be lost.",
	"A85:cache":          "Send Cache-Control: no-store with the identity. A proxy would show a runner that has drained as ready.",
	"A87:flags":          "Read the flags of the contract too, and let them beat the variables. Operators use either.",
	"A92:cursor":         "Leave cursor and protocol version out of a manifest whose flush was skipped. Nothing happened that a restore could continue.",
	"A94:empty":          "Take an empty list of export paths for the workspace. An empty export keeps nothing.",
	"A95:unchanged":      "Change nothing when a drain is refused. The runner would refuse its clients without having been drained.",
	"A96:ends":           "End the streams of a drained session soon after its last snapshot. Clients would wait on a session that is over.",
	"A97:inspection":     "Answer state, events, heartbeats and disconnects after a drain. People look at what was drained.",
	"A98":                "Answer a second drain with the first result, and say so with X-Maestro-Drain-Replayed. A second manifest would hold nothing.",
	"A99":                "Make one drain of several at the same time.",
	"A100":               "Show nothing beyond the cursor of the manifest. Restored runners would use those cursors again.",
	"A101:hidden":        "Give manifests names that do not begin with a dot. Tools overlook hidden files.",
	"A103":               "Write a manifest under another name and rename it when it is complete. A reader could find half of one.",
	"A108:invalid":       "Do not start from a manifest of another version, with another export mode, or without a required key. What is restored would be wrong.",
	"A108:session":       "Do not start from the manifest of another session than the configured one. Clients would find another conversation under the known id.",
	"A110":               "Drain on SIGTERM and SIGINT, for process_shutdown by maestro_web_server, and wait for a drain that runs. Platforms end processes this way.",
	"A111":               "Refuse an X-Maestro-Owner-Instance-Id that is not the runner's generation. A gateway with an old address would reach the wrong runner.",
	"A117":               "Show the same session on every transport. Its clients would otherwise disagree.",
	"D5":                 "Let a slow client catch up instead of resetting it while what it missed is kept. A reset costs it the items between.",
	"D7":                 "Let controllers ask for the lease, and number every grant. A client could act on a grant that is no longer its own.",
	"D8":                 "Keep questions until the next controller answers them, take the first answer, and refuse the others. A user's answer would get lost.",
	"D10":                "Check Host and Origin of requests, answer health without a credential, and bound the subscriptions of a connection. A web page of a stranger could drive the session.",
	"D13":                "Ignore unknown keys and null in optional keys, and refuse duplicate keys, invalid UTF-8 and endless nesting. Newer clients send more than older servers know.",
	"0.2:both":           "Send exit_code and signal with every exit, null where one does not apply. Clients need not tell absent from null.",
	"1.1:alias":          "Take messages at /message as at /messages. Some clients know the one, some the other.",
	"1.1:encoding":       "Decode the session id in a path. Clients may percent-encode any character.",
	"1.1:ids":            "Refuse session ids of more than 128 bytes or other characters than A-Z, a-z, 0-9 and ._:- with 400. They become parts of paths and file names.",
	"1.1:list":           "List the sessions at GET /api/headless/sessions. Clients let their users choose from it.",
	"1.1:methods":        "Answer a wrong method with 405 and Allow. A client that gets 404 takes the route for missing.",
	"1.1:sessions":       "Create and find sessions at POST /api/headless/sessions. Clients of one of the published servers begin with it.",
	"1.1:states":         "Serve the state at /state and at the session itself. Each of the two published servers has one of them.",
	"1.1:unsubscribe":    "Offer POST unsubscribe. A client could otherwise only end its whole connection.",
	"1.2:contradiction":  "Refuse headers that name two different connections, subscriptions or roles. One of them is a mistake.",
	"1.2:spellings":      "Read the headers in all three families, x-maestro-, x-composer- and x-evalops-, and subscription-id as subscriber-id. Older clients send the other ones.",
	"1.3:mark":           "Ignore a byte-order mark before the first line. Some systems write one.",
	"1.3:nesting":        "Bound the nesting of JSON texts. A deep one could exhaust the stack.",
	"1.3:separators":     "Escape U+2028 and U+2029. Some readers take them for the end of a line.",
	"1.3:surrogates":     "Replace a lone surrogate by U+FFFD. Many parsers refuse it.",
	"1.3:utf8":           "Refuse invalid UTF-8 instead of replacing it. The agent would get another text than was sent.",
	"1.4:details":        "Give every refusal details with an ErrorInfo: reason, domain and metadata such as the session and who holds the lease. Clients need not parse the text.",
	"1.4:retryable":      "Say in every refusal whether the same request may succeed later. Clients then retry what can help, and nothing else.",
	"1.6:announced":      "Publish connection_info when somebody connects. Others see who is there.",
	"1.6:bound":          "Take a request without a session id for the bound session. There is no other.",
	"1.6:live":           "Look for a session among those that run before looking in the storage. Nobody could otherwise join one that has saved nothing yet.",
	"1.6:vocabulary":     "Refuse words outside the closed sets and values of wrong types with 400. A client that mistypes one would take it for understood.",
	"1.7:key":            "Answer a repeated creation with the same Idempotency-Key with the same session. A creation whose answer was lost would make two.",
	"1.7:order":          "Handle input in the order of its arrival. A client that changes a setting and goes on relies on it.",
	"1.7:unknown":        "Create the session that POST sessions names, if there is none. Clients can then choose the name.",
	"1.9:old-items":      "Begin a stream after the cursor that the client presents. It would show old items again.",
	"1.10:ends":          "End the stream of a subscription that was ended. Nothing will come on it.",
	"1.11:cursor":        "Refuse a cursor that is no number with 400. The client would take a fresh stream for a replay.",
	"1.11:epoch":         "Name the epoch of the journal in X-Maestro-Headless-Epoch, and answer a cursor of another epoch with a reset. Cursors of another life of the server mean something else.",
	"1.11:framing":       "Write each envelope as one data line of the default event, and no fields of your own. Simple readers know nothing else.",
	"1.11:ids":           "Give snapshot, reset and message events the id EPOCH.CURSOR, and heartbeats none. Browsers come back with the last id by themselves.",
	"1.11:keepalive":     "Send a comment every 15 s to those who opted out of heartbeats. Proxies close silent connections.",
	"1.11:odd-id":        "Ignore a Last-Event-ID of another form. A browser may repeat the id of another server.",
	"1.11:retry":         "Begin a stream with retry: 2000, once. Browsers choose a delay of their own otherwise.",
	"1.12:answer":        "Answer a message with ok, accepted, cursor, execution, published_messages and the snapshot after it. The client sees the effect at once.",
	"1.12:foreign":       "Refuse a message whose subscription is another connection's with 403. One of the two ids is a mistake.",
	"1.12:order":         "Check session, connection, role, lease, message and capability in this order. A client then mends the first cause first.",
	"1.12:role":          "Refuse a message with the role header viewer, also of a controller. A client that only means to watch then changes nothing.",
	"1.13:contradiction": "Refuse a heartbeat or disconnect whose ids belong to two connections with 403. One of them is a mistake.",
	"1.13:ends":          "End the streams of a connection that was disconnected. Nothing will come on them.",
	"1.13:health":        `Answer /healthz with {"ok":true}, whatever the runner does. It says that the process lives.`,
	"1.13:never":         "Answer the disconnect of a connection that never was with 404. The client named a wrong one.",
	"1.13:ready":         "Answer /readyz with ok, ready and draining, with the code runtime_not_ready when it is not, and without paths.",
	"2.2:optional":       "Send cwd, pid and owner_connection_id when a command starts. Clients show them.",
	"2.2:request-id":     "Name the request in every error that answers one, in request_id. A client has several under way.",
	"2.2:snapshots":      "Give each published snapshot a cursor of its own, and do not replay it. Clients drop one whose cursor they have.",
	"2.4:at-once":        "Let the opt-outs of a later hello hold for the streams that are open. The client does not want them any more.",
	"3.2:implicit":       "Count a stream without a subscription as a connection for as long as it lasts. Others see who watches.",
	"3.4:announced":      "Publish connection_info and a snapshot when the lease moves. Everybody sees who drives.",
	"3.5:held":           "Accept a prompt right after an interrupt. A client cannot see when the run has ended.",
	"3.5:told":           "Say at the end of an interrupted run that it was interrupted, with an error of type cancelled. A client cannot tell otherwise.",
	"3.6:ends":           "End the streams of a session that was shut down, after a last snapshot. Clients would wait on a session that is over.",
	"3.8:ignored":        "Ignore what follows a shutdown. A client that gets an answer takes it for done.",
	"4.2:controller":     "Name the controller's first attached subscription, else its first one, in controller_subscription_id. Clients compare it with their own.",
	"4.3:full":           "Send connection_info with everything about the connection. Clients replace their entry by it.",
	"4.3:reserved":       "Keep the id of a command taken until it has exited. A client could not tell two commands apart.",
	"5.0:relative":       "Resolve the relative cwd of a command against the workspace, as other paths. Clients do not know where the server was started.",
	"5.1:background":     "Wait at most 2 s for the output of background processes when a command exits. The exit would never be told.",
	"5.1:credentials":    "Keep variables that look like credentials from commands. A client could read them.",
	"5.1:empty-id":       "Refuse a command with an empty id. Nothing could be said about it.",
	"5.1:file":           "Refuse a working directory that is a file. Nothing can run there.",
	"5.1:limit":          "Refuse the 33rd command at once. A client could exhaust the machine.",
	"5.1:pieces":         "Send at most 64 KiB of output in a message. Clients bound what they take.",
	"5.1:size":           "Refuse terminals of more than 65,535 columns or rows. No terminal has more.",
	"5.1:terminal":       "Refuse a command whose terminal or program cannot be started with an error alone, and free its id. An exit without a start confuses clients.",
	"5.1:term":           "Set TERM on a terminal that the environment has none for. Programs would not know what they can draw.",
	"5.1:unknown":        "Refuse unknown flags and arguments. A flag that was mistyped would be ignored.",
	"5.1:words":          "Word refusals of operations as the published server does. Clients match the texts.",
	"5.2:listing":        "Find what version control would list: hidden files too, ignored ones not, none behind links, and new ones soon. People look for their sources.",
	"5.2:words":          "Use the texts of the contract for failed starts. Operators search for them.",
	"5.3:drained":        "Name status, manifest and time of the drain in the identity. A control plane that missed the answer finds the manifest.",
	"5.3:long":           "Cut a line of more than 1 MiB with a marker. One line could exceed what clients take.",
	"5.3:mark":           "Take a byte-order mark away from what is read. It is no part of the text.",
	"5.3:ownerless":      "Answer the identity of a runner without an owner generation. Control planes that set no generation ask for it too.",
	"5.3:regular":        "Read regular files only. Reading a pipe would never end.",
	"5.3:workspace":      "Say in the identity that a runner whose workspace is gone is not ready. Nothing can be done in it.",
	"5.4:busy":           "Report a file that is written to all the time after ten times the debounce. It would never be reported.",
	"5.4:create":         "Report new files as create. Clients cannot tell a new file from a moved one.",
	"5.4:directories":    "Report new and removed directories too. Clients show trees.",
	"5.4:draining":       "Check whether the runner drains before checking the session id. The client then tries again elsewhere.",
	"5.4:limit":          "Refuse the 65th watch. A client could exhaust the machine.",
	"5.4:metadata":       "Name runner, owner and session in the details of hosted-runner refusals, and draining. Gateways find the right runner by it.",
	"5.4:removed":        "End a watch whose directory was removed, and say so. Nothing will be reported.",
	"5.4:workspace":      "Refuse another workspaceRoot than the runner's: 409, or 400 for one that is not there. The client would work in the wrong directory.",
	"5.5:announced":      "Announce a drain with a status and its reason. People see why their session ends.",
	"5.5:cache":          "Send Cache-Control: no-store with the answer to a drain. It names paths.",
	"5.5:cursor":         "Give the manifest, its snapshot and the last envelope one cursor, beyond all others. A restored runner goes on from it.",
	"5.5:missing":        "Refuse an export path that is not there with 400. The export would silently lack it.",
	"5.5:quiet":          "Make the snapshot of a manifest ready only after a completed flush. A restore would take it for complete.",
	"5.5:stops":          "End commands and watches before the manifest is written. They would change what was exported.",
	"5.5:words":          "Use the texts of the contract for refused drains. Operators search for them.",
	"5.7:cursor":         "Go on from the larger of two cursors in a manifest. Clients have seen the larger one.",
	"5.9:status":         "End with status 0 after a drain by signal, 3 if it was interrupted, and at once after a second signal. Supervisors read the status.",
	"5.10:code":          "Send the code of the vocabulary in code and error_type. Clients classify by it, and else by text.",
	"5.10:status":        "Answer with the HTTP status that belongs to the code. Proxies and libraries know only the status.",
	"8.1:token":          "Give each connection a secret in X-Maestro-Headless-Connection-Token, and check it where it is presented. Connection ids are public.",
	"8.1:viewer":         "Make a stream without a subscription a viewer. It did not ask for control.",
}
