// Package chaos makes a sound server of the Maestro headless protocol seem to be a
// broken one. It stands between a client and the server and injects a list of
// [Fault] values: frames and HTTP answers are dropped, repeated, swapped, delayed,
// altered, cut off or made up, and processes treat their input, signals, environment
// and exit status wrongly. Everything that no fault applies to passes unchanged.
//
// A [Proxy] stands before a server over HTTP, server-sent events and WebSocket.
// [Stdio] runs a server that speaks on its standard streams, and [Runner] a hosted
// runner.
//
// The suite in conformance uses the package to prove that its scenarios can fail.
package chaos

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Fault is one deviation. It has a text form of one line, which [Parse] reads:
//
//	POINT SUBJECT... [KEY=PATTERN] [#N|#N+] ACTION [ARGUMENT]
//
// The points and their subjects are
//
//	server TYPE                   a frame of the server: a line, a WebSocket text, an event of a stream
//	client TYPE                   a frame of the client on standard input or a WebSocket
//	answer METHOD NAME STATUS     an HTTP answer; NAME is the last element of the path
//	request METHOD NAME           an HTTP request
//	process                       the process of a server on standard streams, or of a hosted runner
//
// TYPE is the type of a message, or that of the envelope if there is no message in it,
// comment for a text without a type, and end for the end of a link.
// Subjects and PATTERN may have the wildcards of [path.Match]. KEY names a value of
// the JSON text by its keys with dots between them, from the message on; with a slash
// before it, from the top of the text on.
//
// #2 is the second match alone and #2+ every match from the second on. Matches of
// frames are counted for each link, all others for each proxy.
type Fault struct {
	Point   Point
	Subject []string // as many as the point has
	Key     string   // empty for no condition
	Pattern string
	Nth     int  // 0 is every match
	On      bool // the matches after the Nth too
	Action  string
	Arg     string
}

// A Point is where a fault applies.
type Point string

// The points.
const (
	Server  Point = "server"
	Client  Point = "client"
	Answer  Point = "answer"
	Request Point = "request"
	Process Point = "process"
)

// subjects is how many words follow a point.
var subjects = map[Point]int{Server: 1, Client: 1, Answer: 3, Request: 2, Process: 0}

// actions lists what faults of a point can do, each with the form of its argument.
var actions = map[Point]map[string]string{
	Server: texts, Client: texts,
	Request: {
		"drop":   "",           // answer 200 {} instead of passing it on
		"delay":  "DURATION",   // before it is passed on
		"header": "NAME=VALUE", // without a value the header is removed
		"set":    texts["set"], "delete": texts["delete"], "rename": texts["rename"], "sub": texts["sub"],
		"query": "NAME=VALUE", // without a value the parameter is removed
		"path":  "OLD=>NEW",   // in the path
	},
	Answer: {
		"drop":   "",            // hang up instead of answering
		"delay":  "DURATION",    // before it is passed on
		"status": "STATUS",      // another one
		"header": "NAME=VALUE",  // without a value the header is removed
		"forge":  "STATUS TEXT", // another answer; TEXT is JSON
		"set":    texts["set"], "delete": texts["delete"], "rename": texts["rename"], "sub": texts["sub"], "cut": texts["cut"],
		"file": "KEY=VALUE", // set a value in the file that the answer's manifest_path names
	},
	Process: {
		"exit":   "STATUS",     // end with this status
		"env":    "NAME=VALUE", // start the command with this variable; without a value it is removed
		"flag":   "FLAG",       // append this argument to the command's
		"deaf":   "",           // do not pass signals on
		"eof":    "",           // do not pass the end of input on
		"kill":   "",           // kill the command when its input ends
		"linger": "DURATION",   // stay after the command has ended
		"start":  "DURATION",   // wait before starting the command
		"ready":  "OLD=>NEW",   // alter the ready line
		"stderr": "OLD=>NEW",   // alter the lines of standard error
	},
}

// texts are the actions on texts.
var texts = map[string]string{
	"drop":   "",          // the text
	"repeat": "",          // send it twice
	"swap":   "",          // send it after the next one
	"delay":  "DURATION",  // it, and all behind it
	"set":    "KEY=VALUE", // VALUE is JSON or a word; +N and -N are added to a number
	"delete": "KEY",       // a value
	"rename": "KEY=KEY",   // a value; the second key is the last element alone
	"sub":    "OLD=>NEW",  // replace what the regular expression OLD matches
	"cut":    "",          // send half of the text, then end the link
	"end":    "",          // end the link instead of sending the text
	"add":    "TEXT",      // send TEXT after it
	"before": "TEXT",      // send TEXT before it
}

// Parse reads the text form of a fault.
func Parse(line string) (Fault, error) {
	wrong := func(why string) (Fault, error) { return Fault{}, fmt.Errorf("fault %q: %s", line, why) }
	words := strings.Fields(line)
	if len(words) == 0 {
		return wrong("no point")
	}
	f := Fault{Point: Point(words[0])}
	n, known := subjects[f.Point]
	if words = words[1:]; !known || len(words) <= n {
		return wrong("want server, client, answer, request or process, its subjects and an action")
	}
	if n > 0 {
		f.Subject = words[:n]
	}
	for words = words[n:]; len(words) > 0 && f.Action == ""; words = words[1:] {
		word := words[0]
		key, pattern, condition := strings.Cut(word, "=")
		switch _, isAction := actions[f.Point][word]; {
		case isAction:
			f.Action = word
		case strings.HasPrefix(word, "#"):
			number, on := strings.CutSuffix(word[1:], "+")
			nth, err := strconv.Atoi(number)
			if err != nil || nth < 1 {
				return wrong("want #N or #N+")
			}
			f.Nth, f.On = nth, on
		case condition:
			f.Key, f.Pattern = key, pattern
		default:
			return wrong("no action " + word)
		}
	}
	if f.Action == "" {
		return wrong("no action")
	}
	for _, p := range append(slices.Clone(f.Subject), f.Pattern) {
		if _, err := path.Match(p, ""); err != nil {
			return wrong(err.Error())
		}
	}
	_, f.Arg, _ = strings.Cut(line, " "+f.Action) // the argument may have blanks
	f.Arg = strings.TrimPrefix(f.Arg, " ")
	form := actions[f.Point][f.Action]
	if (form == "") != (f.Arg == "") {
		return wrong(strings.TrimSpace("want " + f.Action + " " + form))
	}
	if err := checkArg(form, f.Arg); err != nil {
		return wrong(err.Error())
	}
	return f, nil
}

// checkArg reports an argument of the wrong form.
func checkArg(form, arg string) (err error) {
	old, _, substitutes := strings.Cut(arg, "=>")
	status, _, _ := strings.Cut(arg, " ")
	switch {
	case form == "DURATION":
		_, err = time.ParseDuration(arg)
	case strings.HasPrefix(form, "STATUS"):
		_, err = strconv.Atoi(status)
	case form == "OLD=>NEW" && substitutes:
		_, err = regexp.Compile(old)
	case form == "OLD=>NEW", strings.Contains(form, "=") && !strings.Contains(arg, "="):
		err = fmt.Errorf("want %s", form)
	}
	return err
}

// concerns reports whether a fault is about a subject.
func (f *Fault) concerns(subject ...string) bool {
	for i, want := range f.Subject {
		if ok, _ := path.Match(want, subject[i]); !ok { // Parse has checked the pattern
			return false
		}
	}
	return true
}

// holds reports whether the condition of a fault holds for a text.
func (f *Fault) holds(t *text) bool {
	if f.Key == "" {
		return true
	}
	value, there := t.at(f.Key)
	ok, _ := path.Match(f.Pattern, shown(value))
	return there && ok
}

// A counted is a fault and how often it has matched. It is not safe for concurrent
// use.
type counted struct {
	*Fault
	seen int
}

// due counts a match, and reports whether the fault applies to it.
func (c *counted) due() bool {
	c.seen++
	return c.Nth == 0 || c.seen == c.Nth || c.On && c.seen > c.Nth
}

// choose returns new counters for the faults of a point.
func choose(faults []Fault, at Point) []counted {
	var chosen []counted
	for i := range faults {
		if faults[i].Point == at {
			chosen = append(chosen, counted{Fault: &faults[i]})
		}
	}
	return chosen
}
