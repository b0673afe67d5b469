//go:build unix

package tool

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/agent/command"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestCommandsAreToldWithTheirEnd(t *testing.T) {
	b := on(t, map[string]string{"in.txt": "in\n"})
	for _, tt := range []struct {
		line, want string
		failed     bool
	}{
		{"cat in.txt; echo err >&2", "in\nerr", false},
		{"pwd", b.Workspace.Root(), false},
		{"true", "Exit code 0, no output.", false},
		{"echo out; exit 3", "out\n\nExit code 3.", true},
		{"exit 4", "Exit code 4.", true},
		{"cat", "Exit code 0, no output.", false}, // standard input is empty
		{`printf 'a\000b\377c'`, "a\uFFFDb\uFFFDc", false},
	} {
		if res := b.call("bash", args{"command": tt.line}); res.Text != tt.want || res.IsError != tt.failed {
			t.Errorf("%s: got %q, error %v; want %q, error %v", tt.line, res.Text, res.IsError, tt.want, tt.failed)
		}
	}
	b.refuses("bash", args{"command": "echo x; kill -KILL $$"}, "x\n\nEnded by SIGKILL after ")
	b.refuses("bash", args{"command": " \n"}, "The argument command is empty.")
	b.refuses("bash", args{"command": "a\x00b"}, "NUL")
	b.refuses("bash", args{"command": strings.Repeat("x", command.MaxLine+1)}, "100001 bytes")
}

func TestCommandThatTakesTooLongIsEnded(t *testing.T) {
	t.Parallel()
	b := on(t, nil)
	path, _, ended := hosttest.Witness(t)
	b.refuses("bash", args{"command": "exec 3>" + path + "; echo >&3; echo begun; sleep 1000 & sleep 1000", "timeout_ms": 3000},
		"begun\n\nEnded because it took longer than 3s.", "timeout_ms")
	hosttest.Happens(t, "the end of every process", ended)
}

func TestEndedCallEndsTheCommand(t *testing.T) {
	b := on(t, nil)
	path, running, ended := hosttest.Witness(t)
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { // ends when the command runs
		<-running
		cancel(stopped)
	}()
	_, err := b.tool("bash").Run(ctx, args{"command": "exec 3>" + path + "; echo >&3; sleep 1000"}.json(t), func(string) error { return nil })
	if !errors.Is(err, stopped) {
		t.Errorf("got %v, want %v", err, stopped)
	}
	hosttest.Happens(t, "the end of the command", ended)
}

func TestOutputThatNobodyTakesEndsTheCommand(t *testing.T) {
	b := on(t, nil)
	full := errors.New("full")
	_, err := b.tool("bash").Run(t.Context(), args{"command": "while :; do echo y; done"}.json(t), func(string) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

// Who watches the output learns how it ended, too, unless the result is shown.
func TestEndingIsShownAfterOutput(t *testing.T) {
	b := on(t, nil)
	for line, want := range map[string]string{"echo out; exit 3": "out\n\nExit code 3.", "exit 3": "", "echo out": "out\n"} {
		var shown strings.Builder
		_, err := b.tool("bash").Run(t.Context(), args{"command": line}.json(t), func(text string) error {
			shown.WriteString(text)
			return nil
		})
		if err != nil || shown.String() != want {
			t.Errorf("%s: got %q, %v; want %q", line, shown.String(), err, want)
		}
	}
}

// What was shown as it came is all of it, and the model is told both ends.
func TestLongOutputIsToldByItsEnds(t *testing.T) {
	b := on(t, nil)
	var shown strings.Builder
	pieces := 0
	res, err := b.tool("bash").Run(t.Context(), args{"command": "seq 100000"}.json(t), func(text string) error {
		shown.WriteString(text)
		pieces++
		return nil
	})
	must(t, err)
	all := shown.String()
	if pieces < 2 || !strings.HasPrefix(all, "1\n2\n3\n") || !strings.HasSuffix(all, "\n99999\n100000\n") {
		t.Errorf("got %d bytes in %d pieces, want all in several", len(all), pieces)
	}
	head, rest, _ := strings.Cut(res.Text, "\n[… ")
	lost, tail, _ := strings.Cut(rest, " left out …]\n")
	if !strings.HasPrefix(all, head) || !strings.HasSuffix(strings.TrimSuffix(all, "\n"), tail) || len(res.Text) > maxOutputBytes+100 {
		t.Errorf("got %d bytes, %q … %q; want both ends", len(res.Text), head[:min(20, len(head))], tail[max(0, len(tail)-20):])
	}
	if want := count(len(all)-maxOutputBytes, "byte"); lost != want {
		t.Errorf("got %s left out, want %s", lost, want)
	}
}

func TestCommandsGetNoCredentials(t *testing.T) {
	t.Setenv("SOME_API_KEY", "hidden")
	t.Setenv("OTHER_TOKEN", "passed")
	t.Setenv("PLAIN_NAME", "plain")
	b := on(t, nil)
	b.EnvPass = []string{"OTHER_TOKEN"}
	const line = `echo "$SOME_API_KEY,$OTHER_TOKEN,$PLAIN_NAME"`
	if got := b.does("bash", args{"command": line}); got != ",passed,plain" {
		t.Errorf("got %q, want no credential but the one that is passed", got)
	}
	b.Hosted = true
	if got := b.does("bash", args{"command": line}); got != ",passed," {
		t.Errorf("got %q, want nothing but what is passed", got)
	}
}

func TestShellIsTheOneThatIsSet(t *testing.T) {
	b := on(t, map[string]string{"shell": "#!/bin/sh\necho mine: \"$2\"\n"})
	b.does("bash", args{"command": "chmod +x shell"})
	b.Shell = b.Workspace.At("shell")
	if got := b.does("bash", args{"command": "anything"}); got != "mine: anything" {
		t.Errorf("got %q, want the output of the shell that was set", got)
	}
}

func TestWindowKeepsBothEnds(t *testing.T) {
	for _, text := range []string{"", "a", "abcdefgh", "abcdefghi", "äöüßäöüßäöüß", "日本語日本語日本語", "abc日d日"} {
		for piece := 1; piece <= len(text)+1; piece++ {
			w := window{half: 4}
			kept := 0
			for rest := []rune(text); len(rest) > 0; {
				n := min(piece, len(rest))
				w.add(string(rest[:n]))
				rest = rest[n:]
			}
			kept = len(w.head) + len(w.tail)
			if !strings.HasPrefix(text, w.head) || !strings.HasSuffix(text, w.tail) || len(w.head) > 4 || len(w.tail) > 4 || kept < min(len(text), 3) {
				t.Errorf("%q in pieces of %d: got %q and %q, want its ends", text, piece, w.head, w.tail)
			}
			if got := w.text(); len(text) <= 8 && len(text) == kept && got != text {
				t.Errorf("%q in pieces of %d: got %q, want all", text, piece, got)
			}
		}
	}
}
