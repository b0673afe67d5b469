// Package fakeprogram makes a test binary the child of an agent under test: a program
// that exchanges lines of JSON as a script says.
//
// A script is a list of steps:
//
//	<TYPE          reads messages until one of this type comes
//	!exit N        exits with this status
//	!hang          does nothing until it is killed
//	!stderr TEXT   writes to standard error
//	!repeat N TEXT writes a line many times
//	!every D N TEXT writes a line N times, after a pause of D before each
//	!long N        writes a line of N bytes that is no message
//	!fill N TEXT   writes a line of N bytes, with a long text in the place of $FILL
//	!hold FILE     starts a process that holds a file open and ignores signals
//
// Any other step is a line to write. In lines $ID is the id of the last message read,
// and $RESUME is the last argument of the program. After the script the program reads on.
// It exits when its input ends.
package fakeprogram

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	notesVar = "MAESTRO_TEST_NOTES" // the directory of the scripts, and of what programs were sent
	scripts  = "scripts.json"       // a list of scripts, one for each start; the last repeats
)

// Play plays the program and exits if this process is one; call it before any test.
func Play() {
	notes := os.Getenv(notesVar)
	if notes == "" {
		return
	}
	text, err := os.ReadFile(filepath.Join(notes, scripts))
	var all [][]string
	if err = errors.Join(err, json.Unmarshal(text, &all)); err != nil {
		panic(err)
	}
	f := &fake{in: bufio.NewScanner(os.Stdin), notes: notes}
	f.in.Buffer(nil, 16<<20)
	f.note("starts", "program "+strings.Join(os.Args[1:], " "))
	f.play(all[min(len(f.read("starts")), len(all))-1])
}

// A Program is the programs of one test.
type Program struct {
	Argv  []string
	notes string
}

// New returns a program with a script for each of its starts; the last one repeats.
func New(t *testing.T, each ...[]string) Program {
	t.Helper()
	text, err := json.Marshal(each)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := Program{Argv: []string{exe}, notes: t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.notes, scripts), text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(notesVar, p.notes)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // or a program built with -race takes a second to exit
	return p
}

// Starts returns the arguments of each start, after the word program.
func (p Program) Starts() []string { return (&fake{notes: p.notes}).read("starts") }

// Sent returns the messages of a type that the programs have read.
func (p Program) Sent(typ string) []string {
	var of []string
	for _, line := range (&fake{notes: p.notes}).read("lines") {
		if typeOf(line) == typ {
			of = append(of, line)
		}
	}
	return of
}

func typeOf(line string) string {
	var m struct{ Type string }
	_ = json.Unmarshal([]byte(line), &m) // otherwise it has none
	return m.Type
}

type fake struct {
	in    *bufio.Scanner
	notes string
	id    string
}

func (f *fake) note(file, line string) {
	out, err := os.OpenFile(filepath.Join(f.notes, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	_, err = fmt.Fprintln(out, line)
	if err = errors.Join(err, out.Close()); err != nil {
		panic(err)
	}
}

func (f *fake) read(file string) []string {
	text, _ := os.ReadFile(filepath.Join(f.notes, file)) // otherwise there is none yet
	return strings.FieldsFunc(string(text), func(c rune) bool { return c == '\n' })
}

func (f *fake) play(script []string) {
	for _, step := range script {
		verb, rest, _ := strings.Cut(step, " ")
		switch {
		case strings.HasPrefix(step, "<"):
			f.await(step[1:])
		case strings.HasPrefix(step, "!"):
			f.act(verb[1:], rest)
		default:
			f.write(step)
		}
	}
	f.await("")
}

func (f *fake) await(typ string) {
	for f.in.Scan() {
		f.note("lines", f.in.Text())
		var m struct{ ID string }
		_ = json.Unmarshal(f.in.Bytes(), &m)
		if typ != "" && typeOf(f.in.Text()) == typ {
			f.id = m.ID
			return
		}
	}
	os.Exit(0)
}

func (f *fake) write(line string) {
	fmt.Println(strings.NewReplacer("$ID", f.id, "$RESUME", os.Args[len(os.Args)-1]).Replace(line))
}

func (f *fake) act(verb, rest string) {
	first, text, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(first)
	switch verb {
	case "exit":
		os.Exit(n)
	case "hang":
		<-time.After(time.Hour)
	case "stderr":
		fmt.Fprintln(os.Stderr, rest)
	case "repeat":
		for range n {
			f.write(text)
		}
	case "every":
		pause, _ := time.ParseDuration(first)
		count, text, _ := strings.Cut(text, " ")
		n, _ := strconv.Atoi(count)
		for range n {
			<-time.After(pause)
			f.write(text)
		}
	case "long":
		fmt.Println(strings.Repeat("x", n))
	case "fill":
		fmt.Println(strings.Replace(text, "$FILL", strings.Repeat("x", n-len(text)+len("$FILL")), 1))
	case "hold":
		child := exec.Command("/bin/sh", "-c", `exec 3>"$0"; trap "" TERM INT; echo x >&3; sleep 1000`, rest)
		if err := child.Start(); err != nil {
			panic(err)
		}
	default:
		panic("unknown step " + verb)
	}
}
