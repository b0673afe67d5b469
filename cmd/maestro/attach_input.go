package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/seed-028515a8/maestro/internal/show"
)

// verbSay is the verb of an answer or a prompt.
const verbSay = "say"

// verbs are the commands of attach, without their slashes, and what they take.
var verbs = map[string]struct{ text, number, watches bool }{
	"ask": {text: true}, "grant": {number: true}, "deny": {number: true},
	"take": {}, "release": {}, "interrupt": {},
	"queue": {text: true}, "steer": {text: true}, "edit": {number: true}, "first": {number: true}, "drop": {number: true},
	"resume": {}, "queued": {watches: true},
	"inbox": {text: true}, "share": {text: true},
	"show": {watches: true}, "who": {watches: true}, "history": {text: true, watches: true}, "turns": {watches: true}, "find": {text: true, watches: true}, "help": {watches: true}, "quit": {watches: true},
}

// An action is a parsed line.
type action struct {
	verb   string // verbSay, one of verbs, or empty for a blank line
	text   string // a prompt, an answer, or a reason
	number int    // which asker, or prompt of the queue, from 1
}

// acts reports whether the action needs more than a viewer.
func (a action) acts() bool {
	if a.verb == "inbox" {
		return strings.Contains(a.text, " ") // an answer
	}
	return a.verb != "" && !verbs[a.verb].watches
}

const attachHelp = `  text              a prompt, or the answer to an open question
  //text            a text that begins with a slash; commands that the agent has
                    announced need no second slash
  /ask [reason]     ask the controller for control
  /take             take control
  /release          release control
  /grant [n]        give control to the n-th client that asked; default: the first
  /deny [n] [why]   deny control to it
  /interrupt        stop the run (so does Ctrl-C)
  /queue text       send a prompt that waits for the end of the run
  /steer text       send a prompt to the agent during the run, if it takes any
  /queued           show the prompts that wait
  /edit n text      replace the n-th of them
  /first n          move it to the front
  /drop [n]         remove it; default: the first
  /resume           let the queue go on after /interrupt
  /show             show the whole open question
  /who              show who is here, since when, and who is in control
  /inbox [n]        show the open questions of all sessions, or all of the n-th
  /inbox n answer   answer it, such as /inbox 1 y
  /share role [8h] [name]
                    print a link for a viewer, approver or controller, which ends
                    after that time; default: a day
  /share list       show such links and their use
  /share revoke n   end the n-th of them
  /history [n]      show the session from its beginning, or its last n turns;
                    Ctrl-C stops it
  /turns            list the latest prompts
  /find text        list where a text is in the session
  /quit             leave; the session continues (so does Ctrl-D)`

// rulesHelp is added to attachHelp where an agent of ours answers.
const rulesHelp = `
  /rules            what the agent remembers to allow or deny
  /forget rule      take one of those rules back`

// parseLine parses a typed line. Commands of the agent are prompts. Invisible
// characters before a slash, such as Ctrl-L, are ignored.
func parseLine(line string, agents []string) (action, error) {
	line = strings.TrimRight(line, "\r\n")
	unseen := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	visible := strings.TrimLeftFunc(line, unseen)
	if text, ok := strings.CutPrefix(visible, "//"); ok {
		return action{verb: verbSay, text: "/" + text}, nil
	}
	if visible == "" {
		return action{}, nil
	}
	if visible[0] != '/' {
		return action{verb: verbSay, text: line}, nil
	}
	word, rest, _ := strings.Cut(strings.TrimRightFunc(visible[1:], unseen), " ")
	rest = strings.TrimSpace(rest)
	takes, known := verbs[word]
	switch {
	case known && takes.number:
		return numbered(action{verb: word, text: rest})
	case rest == "" && (word == "queue" || word == "steer"):
		return action{}, fmt.Errorf("/%s takes a prompt", word)
	case known && rest != "" && !takes.text:
		return action{}, fmt.Errorf("/%s takes no text after it", word)
	case known:
		return action{verb: word, text: rest}, nil
	case slices.Contains(agents, "/"+word):
		return action{verb: verbSay, text: visible}, nil
	}
	word = show.OneLine(word, 20)
	return action{}, fmt.Errorf("there is no command /%s: /help lists them; for the agent: //%s", word, word)
}

// numbered reads the number at the beginning of the text.
func numbered(a action) (action, error) {
	a.number = 1
	word, rest, _ := strings.Cut(a.text, " ")
	if word == "" {
		return a, nil
	}
	n, err := strconv.Atoi(word)
	switch {
	case err == nil && n >= 1:
		a.number, a.text = n, strings.TrimSpace(rest)
	case err == nil:
		return action{}, errors.New("numbers count from 1")
	case a.verb != "deny":
		return action{}, fmt.Errorf("/%s takes a number", a.verb)
	}
	return a, nil
}
