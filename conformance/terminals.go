package conformance

import (
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// terminals judges commands on a terminal: 5.1, R89, R91.
func terminals() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
		exec.using("terminal/is-one", "R91", "A command in pty mode has a terminal as input, output and error output, and controls it", func(u *user) {
			j := u.terminal("R91", "for fd in 0 1 2; do test -t $fd && echo $fd; done; echo here > /dev/tty")
			if mode := j.started.str("terminal_mode"); mode != "pty" {
				u.s.fail("2.2", "expected terminal_mode pty, got %q", mode)
			}
			j.exits("R91", fields{"success": true, "exit_code": 0, "signal": nil, "reason": nil})
			j.shows("R91", "0\n1\n2\nhere\n")
			u.sh("R91", "test -t 0 || test -t 1 || test -t 2 || echo none").prints("R91", "none\n")
		}),
		exec.using("terminal/one-stream", "5.1 2.2", "All output of a terminal is standard output", func(u *user) {
			j := u.terminal("5.1", "echo out; echo err >&2; exit 4")
			j.exits("5.1", fields{"success": false, "exit_code": 4})
			j.shows("5.1", "out\nerr\n")
			if got := j.output("stderr"); got != "" {
				u.s.fail("2.2", "expected nothing of a terminal on stderr, got %s", show(got))
			}
		}),
		exec.using("terminal/kind", "5.1", "TERM names a terminal, or what the client wants", func(u *user) {
			j := u.start("5.1", &contracts.UtilityCommandStart{Command: "echo $TERM", TerminalMode: contracts.TerminalPTY, Env: map[string]string{"TERM": "vt100"}})
			j.shows("5.1", "vt100\n")
			j = u.terminal("5.1", `test -n "$TERM" && echo some`)
			j.shows("5.1:term", "some\n")
		}),
		exec.using("terminal/typing", "R89", "What a client types is echoed and read", func(u *user) {
			j := u.terminal("R89", "echo ready; read line; echo got $line")
			j.says("R89", "ready")
			j.write("R89", "héllo\n", false)
			j.shows("R89", "ready\nhéllo\ngot héllo\n")
		}),
		exec.using("terminal/not-enabled", "R88 5.1", "Without allow_stdin a client cannot type", func(u *user) {
			j := u.start("R88", &contracts.UtilityCommandStart{Command: "test -t 0 && echo ready; exec sleep 60", TerminalMode: contracts.TerminalPTY})
			j.says("R88", "ready")
			u.denied(&contracts.UtilityCommandStdin{CommandID: j.id, Content: "x"},
				refusal{rule: "R88", text: "Utility command stdin is not enabled: " + j.id, id: j.id})
			j.end()
		}),
		exec.using("terminal/end-of-input", "R89", "eof types Ctrl-D, after which more can be typed", func(u *user) {
			j := u.terminal("R89", "stty -echo; echo ready; cat; echo first; cat; echo second")
			j.says("R89", "ready")
			j.write("R89", "one\n", true)
			j.says("R89", "first")
			j.write("R89", "two\n", false)
			j.says("R89", "two")
			j.write("R89", "", true)
			j.exits("R89", fields{"success": true})
			j.shows("R89", "ready\none\nfirst\ntwo\nsecond\n")
		}),
		exec.using("terminal/ctrl-c", "5.1", "Ctrl-C interrupts the program", func(u *user) {
			j := u.terminal("5.1", "trap 'echo caught; exit 7' INT; echo ready; "+lasting)
			j.says("5.1", "ready")
			j.write("5.1", "\x03", false)
			j.exits("5.1", fields{"success": false, "exit_code": 7, "signal": nil, "reason": nil})
			if got := j.lines(); !strings.HasSuffix(got, "caught\n") {
				u.s.fail("5.1", "expected the program to be interrupted by Ctrl-C, got %s", show(got))
			}
		}),
		exec.using("terminal/large", "5.1", "A lot of output of a terminal comes complete and in order", func(u *user) {
			j := u.terminal("5.1", "seq 1 40000; exit 2")
			j.exits("5.1", fields{"exit_code": 2})
			j.whole("5.1", "stdout", strings.ReplaceAll(counted(40_000), "\n", "\r\n"))
		}),
		exec.using("terminal/cut-characters", "R93", "A character that is written to a terminal in pieces comes whole", func(u *user) {
			u.terminal("R93", `printf 'a\303'; sleep 0.2; printf '\251b\342'; sleep 0.2; printf '\202'; sleep 0.2; printf '\254.'`).shows("R93", "aéb€.")
		}),
		exec.using("terminal/terminate", "R86", "A terminated command on a terminal says so", func(u *user) {
			for _, c := range []struct {
				force          bool
				signal, reason string
			}{{false, "SIGTERM", "Terminated by controller"}, {true, "SIGKILL", "Force terminated by controller"}} {
				j := u.terminal("R86", "echo ready; exec sleep 60")
				j.says("R86", "ready")
				u.do("R86", &contracts.UtilityCommandTerminate{CommandID: j.id, Force: c.force})
				j.exits("R86", fields{"success": false, "exit_code": nil, "signal": c.signal, "reason": c.reason})
			}
		}),
		exec.using("terminal/escalates", "R87", "A command on a terminal that ignores SIGTERM is killed", func(u *user) {
			j := u.terminal("R87:terminal", "trap '' TERM HUP; echo ready; "+lasting)
			j.says("R87:terminal", "ready")
			u.do("R87:terminal", &contracts.UtilityCommandTerminate{CommandID: j.id})
			j.exits("R87:terminal", fields{"success": false, "exit_code": nil, "signal": "SIGKILL", "reason": "Terminated by controller"})
		}),
		exec.using("terminal/no-program", "5.1", "Without a program a terminal is an error and no event, and the id stays free", func(u *user) {
			cmd := &contracts.UtilityCommandStart{CommandID: "none", Command: "conformance-no-such-program", ShellMode: contracts.ShellModeDirect, TerminalMode: contracts.TerminalPTY}
			from := len(u.log)
			u.denied(cmd, refusal{rule: "5.1:terminal", id: "none"})
			u.still("5.1:terminal", from, about("none"))
			u.terminal("5.1:terminal", "echo fine").shows("5.1:terminal", "fine\n")
			u.start("5.1:terminal", &contracts.UtilityCommandStart{CommandID: "none", Command: "true"}).exits("5.1:terminal", fields{"success": true})
		}),
		exec.using("terminal/direct", "5.1", "A terminal runs a program directly too", func(u *user) {
			j := u.start("5.1", &contracts.UtilityCommandStart{Command: `sh -c 'test -t 1 && printf %s "$1"' sh 'a b'`,
				ShellMode: contracts.ShellModeDirect, TerminalMode: contracts.TerminalPTY})
			j.shows("5.1", "a b")
		}),
	}
}

// terminal starts a command on a terminal that a client may type on.
func (u *user) terminal(rule, command string) *job {
	return u.start(rule, &contracts.UtilityCommandStart{Command: command, TerminalMode: contracts.TerminalPTY, AllowStdin: true})
}

// lines is what a terminal showed, with line feeds as line ends.
func (j *job) lines() string { return strings.ReplaceAll(j.output("stdout"), "\r\n", "\n") }

// shows fails unless a terminal showed a text and nothing else.
func (j *job) shows(rule, text string) {
	j.await(rule, message("utility_command_exited"))
	if got := j.lines(); got != text {
		j.u.s.fail(rule, "expected the terminal of %s to show %s, got %s", j.id, show(text), show(got))
	}
}
