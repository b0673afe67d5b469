package chord

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/program"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// interrupted runs a prompt and interrupts it once an event of the type was published.
func (s *stand) interrupted(t *testing.T, typ string) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted by the test")
	go func() { s.host.AwaitType(typ); stop(cause) }() // ends with the event
	if err := s.Run(ctx, contracts.Work{Content: "go"}); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

func TestAnInterruptCancels(t *testing.T) {
	s := newStand(t, t.TempDir(), patient, served(confirm("q1"), "<cancel", say("idle", `"last_outcome":"cancelled"`), "<send", hi, idle))
	s.host.Answer = nil
	s.start(t)
	s.interrupted(t, "server_request")
	if got := s.program.Sent("confirm"); len(got) > 0 { // C34
		t.Errorf("got %q, want no answer", got)
	}
	t.Run("C36 the next prompt works", func(t *testing.T) {
		hosttest.Must(t, s.run(t, "go"))
		s.wantSent(t, "cancel")
		if got := s.program.Starts(); len(got) != 1 {
			t.Errorf("got %q, want the same process", got)
		}
	})
}

func TestAProgramThatIgnoresACancelIsReplacedAndResumes(t *testing.T) {
	w := patient
	w.interrupt = 300 * time.Millisecond
	s := start(t, w, served(connecting, "<cancel", "!hang"), served(hi, idle))
	s.interrupted(t, "status")
	hosttest.Must(t, s.run(t, "go"))
	if got := s.program.Starts(); !slices.Equal(got, []string{"program ", "program --resume s1"}) {
		t.Errorf("got starts %q, want a second one that resumes", got)
	}
	if got := s.statuses(); !strings.Contains(got, "restarted") || strings.Contains(got, "new conversation") {
		t.Errorf("got %q, want a restart of the same conversation", got)
	}
}

func TestProgramsThatMisbehaveAreReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		lines []string
		text  string
	}{
		"exit":          {[]string{connecting, "!exit 3"}, "exit status 3"},
		"stderr":        {[]string{"!stderr secret", "!exit 1"}, "standard error"},
		"garbage":       {[]string{"!repeat 101 this is not JSON"}, "101 lines in a row"},
		"no type":       {[]string{`!repeat 101 {"payload":{}}`}, "101 lines in a row"},
		"long line":     {[]string{"!long 1048577"}, "too long"},
		"no more signs": {[]string{connecting, "!hang"}, "did not tell its status"},
	} {
		t.Run(name, func(t *testing.T) {
			w := patient
			w.poll, w.silence = 100*time.Millisecond, 3*time.Second
			s := start(t, w, served(tt.lines...), served(hi, idle))
			wantError(t, s.run(t, "go"), contracts.ErrorTransient, tt.text)
			hosttest.Must(t, s.run(t, "go"))
		})
	}
}

func TestARestartedServerResumes(t *testing.T) {
	dir := t.TempDir()
	s := newStand(t, dir, patient, served(hi, idle))
	if _, err := s.Start(t.Context(), s.host); err != nil {
		t.Fatal(err)
	}
	hosttest.Must(t, s.run(t, "go"))
	hosttest.Must(t, s.Close(context.Background()))

	t.Run("C45 with the stored id", func(t *testing.T) {
		again := newStand(t, dir, patient, []string{say("ready", `"session_id":"$RESUME"`), "<send", hi, idle})
		again.host.Earlier = true
		again.start(t)
		hosttest.Must(t, again.run(t, "go"))
		if got := again.program.Starts(); !slices.Equal(got, []string{"program --resume s1"}) || strings.Contains(again.statuses(), "new conversation") {
			t.Errorf("got starts %q and %q, want one that resumes", got, again.statuses())
		}
	})
	t.Run("C45 not if the program does not know it", func(t *testing.T) {
		again := newStand(t, dir, patient, []string{"!stderr unknown session s1", "!exit 1"}, served(hi, idle))
		again.host.Earlier = true
		again.start(t)
		hosttest.Must(t, again.run(t, "go"))
		if got := again.program.Starts(); len(got) != 2 || got[1] != "program " || !strings.Contains(again.statuses(), "new conversation") {
			t.Errorf("got starts %q and %q, want a second one without the id", got, again.statuses())
		}
	})
	t.Run("not while another process has it", func(t *testing.T) {
		other := newStand(t, dir, patient, []string{"!stderr acquire session lock: held", "!exit 1"})
		if _, err := other.Start(t.Context(), other.host); err == nil || len(other.program.Starts()) != 1 {
			t.Errorf("got error %v and starts %q, want an error after one", err, other.program.Starts())
		}
	})
}

func TestProgramsThatCannotStart(t *testing.T) {
	for name, tt := range map[string]struct {
		script []string
		text   string
	}{
		"C43 exit":         {[]string{"!stderr no model", "!exit 1"}, "exit status 1"},
		"not our protocol": {[]string{"!repeat 200 Usage: program", "!hang"}, "no messages of Chord"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, t.TempDir(), patient, tt.script)
			if _, err := s.Start(t.Context(), s.host); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got error %v, want one with %q", err, tt.text)
			}
		})
	}
}

func TestAProgramThatIsNotThere(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	a := New(program.Options{Argv: []string{"/does/not/exist"}, Dir: "/"})
	if _, err := a.Start(t.Context(), hosttest.New(t)); err == nil || !strings.Contains(err.Error(), "start agent exist") {
		t.Errorf("got error %v, want that the program cannot be started", err)
	}
	goleak.VerifyNone(t, leaks)
}

func TestASessionThatCannotBeStoredIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	hosttest.Must(t, os.WriteFile(file, nil, 0o600))
	s := newStand(t, file, patient, served(hi, idle, "<send", hi, idle))
	s.start(t)
	hosttest.Must(t, s.run(t, "go"))
	hosttest.Must(t, s.run(t, "go"))
	if got := strings.Count(s.statuses(), "session cannot be kept"); got != 1 {
		t.Errorf("got %q, want that the session cannot be kept, once", s.statuses())
	}
}

func TestOddSessionIDsAreNotResumed(t *testing.T) {
	for _, id := range []string{"", "--help", strings.Repeat("x", 257)} {
		t.Run(fmt.Sprintf("%.10s", id), func(t *testing.T) {
			s := start(t, patient, []string{say("ready", `"session_id":"`+id+`"`), "<send", hi, idle, "!exit 0"}, served(hi, idle))
			hosttest.Must(t, s.run(t, "go"))
			s.host.AwaitType("error") // the exit
			hosttest.Must(t, s.run(t, "go"))
			if got := s.program.Starts(); len(got) != 2 || got[1] != "program " {
				t.Errorf("got starts %q, want a second one without the id", got)
			}
		})
	}
}
