package heddle

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestANewSystemPromptStartsTheProgramAgain(t *testing.T) {
	s := start(t, served(ok))
	hosttest.Must(t, s.run(t))
	s.Configure(&contracts.Init{SystemPrompt: new("Be brief.")})
	hosttest.Must(t, s.run(t))
	if init := s.program.Sent("init"); len(init) != 2 || !strings.Contains(init[1], "Be brief.") {
		t.Errorf("got %q, want a second init with the prompt", init)
	}
	if errs := hosttest.As[*contracts.ErrorEvent](s.host); len(errs) > 0 {
		t.Errorf("got error %q, want none", errs[0].Message)
	}
	if !strings.Contains(s.statuses(), "new conversation") || len(s.program.Sent("shutdown")) != 1 {
		t.Errorf("got %q and %q, want a shutdown and a new conversation", s.statuses(), s.program.Sent("shutdown"))
	}
}

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
	s := start(t, served(say("content_delta", `,"text":"Hm"`), "<cancel",
		`{"type":"result","id":"send-1","status":"error","error":{"code":"cancelled","message":"cancelled","retryable":false},"tool_calls_made":[],"iterations":0}`,
		"<send", ok))
	s.interrupted(t, "response_chunk")
	if got := s.program.Sent("cancel"); len(got) != 1 || !strings.Contains(got[0], `"target_id":"send-1"`) {
		t.Errorf("got %q, want one cancel of send-1", got)
	}
	t.Run("H27 the next prompt works", func(t *testing.T) {
		hosttest.Must(t, s.run(t))
		if got := s.program.Starts(); len(got) != 1 {
			t.Errorf("got %d starts, want the same process", len(got))
		}
	})
}

func TestAProgramThatIgnoresACancelIsReplaced(t *testing.T) {
	w := patient
	w.interrupt = 300 * time.Millisecond
	s := startWith(t, w, served(say("tool_start", `,"name":"glob","args":{}`), "<cancel", "!hang"), served(ok))
	s.interrupted(t, "tool_start")
	hosttest.Must(t, s.run(t))
	if got := s.statuses(); !strings.Contains(got, "restarted") || !strings.Contains(got, "new conversation") {
		t.Errorf("got %q, want a restart that begins a new conversation", got)
	}
}

func TestProgramsThatMisbehaveAreReplaced(t *testing.T) {
	beat := say("heartbeat", `,"duration_ms":100`)
	for name, tt := range map[string]struct {
		lines []string
		text  string
	}{
		"exit":            {[]string{say("tool_start", `,"name":"glob","args":{}`), "!exit 3"}, "exit status 3"},
		"closed output":   {[]string{"!stderr secret", "!exit 0"}, "standard error"},
		"garbage":         {[]string{"!repeat 101 this is not JSON"}, "101 lines in a row"},
		"no objects":      {[]string{"!repeat 101 [1]"}, "101 lines in a row"},
		"long line":       {[]string{"!long 10485761"}, "too long"},
		"many calls":      {[]string{"!repeat 129 " + say("tool_start", `,"name":"glob","args":{}`)}, "more than 128 calls"},
		"lost heartbeats": {[]string{beat, beat, "!hang"}, "heartbeats"},
	} {
		t.Run(name, func(t *testing.T) {
			w := patient
			w.silence = 500 * time.Millisecond
			s := startWith(t, w, served(tt.lines...), served(ok))
			wantError(t, s.run(t), contracts.ErrorTransient, tt.text)
			hosttest.Must(t, s.run(t))
		})
	}
}

func TestHeartbeatsKeepAProgramAlive(t *testing.T) {
	w := patient
	w.silence = 2 * time.Second // shorter than the run
	s := startWith(t, w, served("!every 100ms 25 "+say("heartbeat", `,"duration_ms":100`), ok))
	hosttest.Must(t, s.run(t))
}

func TestSomeGarbageIsReportedOnce(t *testing.T) {
	s := start(t, served("!repeat 50 this is not JSON", ok))
	hosttest.Must(t, s.run(t))
	if errs := hosttest.As[*contracts.ErrorEvent](s.host); len(errs) != 1 || errs[0].ErrorType != contracts.ErrorProtocol {
		t.Errorf("got %d errors, want one of the protocol", len(errs))
	}
}

func TestAProgramThatDiesBetweenRunsIsStartedAgain(t *testing.T) {
	s := start(t, []string{"<init", initOK, "<send", ok, "!exit 4"}, served(ok))
	hosttest.Must(t, s.run(t))
	died := s.host.AwaitType("error").(*contracts.ErrorEvent)
	if !strings.Contains(died.Message, "exit status 4") || !strings.Contains(died.Message, "next prompt") {
		t.Errorf("got %q, want how it ended and what happens next", died.Message)
	}
	hosttest.Must(t, s.run(t))
}

func TestProgramsThatCannotStart(t *testing.T) {
	const mismatch = `{"code":"protocol_version_mismatch","message":"protocol_version_mismatch","retryable":false}`
	for name, tt := range map[string]struct {
		script []string
		text   string
	}{
		"H5 mismatch as a result":   {[]string{"<init", `{"type":"result","id":"$ID","status":"error","error":` + mismatch + `}`, "!exit 1"}, "protocol_version_mismatch"},
		"H5 mismatch as init_ok":    {[]string{"<init", `{"type":"init_ok","id":"$ID","session_id":"","protocol_version":"1.0.0","error":` + mismatch + `}`}, "protocol_version_mismatch"},
		"a major version of theirs": {[]string{"<init", strings.Replace(initOK, "0.5.0", "1.2.0", 1)}, `"1.2.0"`},
		"no session":                {[]string{"<init", `{"type":"init_ok","id":"$ID","session_id":"","protocol_version":"0.5.0"}`}, "no session"},
		"bad configuration":         {[]string{"<init", `{"type":"result","id":"$ID","status":"error","error":{"code":"protocol_error","message":"no model"}}`}, "no model"},
		"exit":                      {[]string{"!stderr no key", "!exit 1"}, "exit status 1"},
		"not our protocol":          {[]string{"!repeat 200 Usage: program", "!hang"}, "no messages of Heddle"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, patient, tt.script)
			if _, err := s.Start(t.Context(), s.host); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got error %v, want one with %q", err, tt.text)
			}
			if got := len(s.program.Starts()); got != 1 {
				t.Errorf("got %d starts, want one", got)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		s := newStand(t, patient, []string{"<init", "!hang"})
		ctx, stop := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("the test is impatient"))
		defer stop()
		if _, err := s.Start(ctx, s.host); err == nil || !strings.Contains(err.Error(), "impatient") {
			t.Errorf("got error %v, want that the start was given up", err)
		}
	})
}

func TestOtherMinorVersionsAreAccepted(t *testing.T) {
	for _, version := range []string{"0.2.0", "0.9.1", "0", "abc", ""} { // H6
		t.Run("H6 "+version, func(t *testing.T) {
			s := start(t, []string{"<init", strings.Replace(initOK, "0.5.0", version, 1), "<send", ok})
			hosttest.Must(t, s.run(t))
		})
	}
}

func TestARestoredSessionIsANewConversation(t *testing.T) {
	s := newStand(t, patient, served(ok))
	s.host.Earlier = true
	if _, err := s.Start(t.Context(), s.host); err != nil {
		t.Fatal(err)
	}
	defer func() { hosttest.Must(t, s.Close(context.Background())) }()
	hosttest.Must(t, s.run(t))
	if got := s.statuses(); !strings.Contains(got, "new conversation") {
		t.Errorf("got %q, want that the conversation is new", got)
	}
}
