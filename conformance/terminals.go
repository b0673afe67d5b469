package conformance

import (
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// terminals judges commands on a terminal: 5.1, R89, R91.
func terminals() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
		{Name: "terminal/is-one", Title: "A command in pty mode has a terminal as input, output and error output, and controls it", Rules: []string{"R91"}, Needs: exec, Run: using(isTerminal)},
		{Name: "terminal/one-stream", Title: "All output of a terminal is standard output", Rules: []string{"5.1", "2.2"}, Needs: exec, Run: using(terminalStream)},
		{Name: "terminal/kind", Title: "TERM names a terminal, or what the client wants", Rules: []string{"5.1"}, Needs: exec, Run: using(terminalKind)},
		{Name: "terminal/typing", Title: "What a client types is echoed and read", Rules: []string{"R89"}, Needs: exec, Run: using(terminalTyping)},
		{Name: "terminal/not-enabled", Title: "Without allow_stdin a client cannot type", Rules: []string{"R88", "5.1"}, Needs: exec, Run: using(terminalNotEnabled)},
		{Name: "terminal/end-of-input", Title: "eof types Ctrl-D, after which more can be typed", Rules: []string{"R89"}, Needs: exec, Run: using(terminalEOF)},
		{Name: "terminal/ctrl-c", Title: "Ctrl-C interrupts the program", Rules: []string{"5.1"}, Needs: exec, Run: using(terminalCtrlC)},
		{Name: "terminal/large", Title: "A lot of output of a terminal comes complete and in order", Rules: []string{"5.1"}, Needs: exec, Run: using(terminalLarge)},
		{Name: "terminal/cut-characters", Title: "A character that is written to a terminal in pieces comes whole", Rules: []string{"R93"}, Needs: exec, Run: using(terminalCutCharacters)},
		{Name: "terminal/terminate", Title: "A terminated command on a terminal says so", Rules: []string{"R86"}, Needs: exec, Run: using(terminalTerminate)},
		{Name: "terminal/escalates", Title: "A command on a terminal that ignores SIGTERM is killed", Rules: []string{"R87"}, Needs: exec, Run: using(terminalEscalates)},
		{Name: "terminal/no-program", Title: "Without a program a terminal is an error and no event, and the id stays free", Rules: []string{"5.1"}, Needs: exec, Run: using(terminalNoProgram)},
		{Name: "terminal/direct", Title: "A terminal runs a program directly too", Rules: []string{"5.1"}, Needs: exec, Run: using(terminalDirect)},
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

func isTerminal(u *user) {
	j := u.terminal("R91", "for fd in 0 1 2; do test -t $fd && echo $fd; done; echo here > /dev/tty")
	if mode := j.started.str("terminal_mode"); mode != "pty" {
		u.s.fail("2.2", "expected terminal_mode pty, got %q", mode)
	}
	j.exits("R91", fields{"success": true, "exit_code": 0, "signal": nil, "reason": nil})
	j.shows("R91", "0\n1\n2\nhere\n")
	u.sh("R91", "test -t 0 || test -t 1 || test -t 2 || echo none").prints("R91", "none\n")
}

func terminalStream(u *user) {
	j := u.terminal("5.1", "echo out; echo err >&2; exit 4")
	j.exits("5.1", fields{"success": false, "exit_code": 4})
	j.shows("5.1", "out\nerr\n")
	if got := j.output("stderr"); got != "" {
		u.s.fail("2.2", "expected nothing of a terminal on stderr, got %s", show(got))
	}
}

func terminalKind(u *user) {
	j := u.start("5.1", &contracts.UtilityCommandStart{Command: "echo $TERM", TerminalMode: contracts.TerminalPTY, Env: map[string]string{"TERM": "vt100"}})
	j.shows("5.1", "vt100\n")
	j = u.terminal("5.1", `test -n "$TERM" && echo some`)
	j.shows("5.1:term", "some\n")
}

func terminalTyping(u *user) {
	j := u.terminal("R89", "echo ready; read line; echo got $line")
	j.says("R89", "ready")
	j.write("R89", "héllo\n", false)
	j.shows("R89", "ready\nhéllo\ngot héllo\n")
}

func terminalNotEnabled(u *user) {
	j := u.start("R88", &contracts.UtilityCommandStart{Command: "test -t 0 && echo ready; exec sleep 60", TerminalMode: contracts.TerminalPTY})
	j.says("R88", "ready")
	u.denied(&contracts.UtilityCommandStdin{CommandID: j.id, Content: "x"},
		refusal{rule: "R88", text: "Utility command stdin is not enabled: " + j.id, id: j.id})
	j.end()
}

func terminalEOF(u *user) {
	j := u.terminal("R89", "stty -echo; echo ready; cat; echo first; cat; echo second")
	j.says("R89", "ready")
	j.write("R89", "one\n", true)
	j.says("R89", "first")
	j.write("R89", "two\n", false)
	j.says("R89", "two")
	j.write("R89", "", true)
	j.exits("R89", fields{"success": true})
	j.shows("R89", "ready\none\nfirst\ntwo\nsecond\n")
}

func terminalCtrlC(u *user) {
	j := u.terminal("5.1", "trap 'echo caught; exit 7' INT; echo ready; "+lasting)
	j.says("5.1", "ready")
	j.write("5.1", "\x03", false)
	j.exits("5.1", fields{"success": false, "exit_code": 7, "signal": nil, "reason": nil})
	if got := j.lines(); !strings.HasSuffix(got, "caught\n") {
		u.s.fail("5.1", "expected the program to be interrupted by Ctrl-C, got %s", show(got))
	}
}

func terminalLarge(u *user) {
	j := u.terminal("5.1", "seq 1 40000; exit 2")
	j.exits("5.1", fields{"exit_code": 2})
	j.whole("5.1", "stdout", strings.ReplaceAll(counted(40_000), "\n", "\r\n"))
}

func terminalCutCharacters(u *user) {
	u.terminal("R93", `printf 'a\303'; sleep 0.2; printf '\251b\342'; sleep 0.2; printf '\202'; sleep 0.2; printf '\254.'`).shows("R93", "aéb€.")
}

func terminalTerminate(u *user) {
	for _, c := range []struct {
		force          bool
		signal, reason string
	}{{false, "SIGTERM", "Terminated by controller"}, {true, "SIGKILL", "Force terminated by controller"}} {
		j := u.terminal("R86", "echo ready; exec sleep 60")
		j.says("R86", "ready")
		u.do("R86", &contracts.UtilityCommandTerminate{CommandID: j.id, Force: c.force})
		j.exits("R86", fields{"success": false, "exit_code": nil, "signal": c.signal, "reason": c.reason})
	}
}

func terminalEscalates(u *user) {
	j := u.terminal("R87:terminal", "trap '' TERM HUP; echo ready; "+lasting)
	j.says("R87:terminal", "ready")
	u.do("R87:terminal", &contracts.UtilityCommandTerminate{CommandID: j.id})
	j.exits("R87:terminal", fields{"success": false, "exit_code": nil, "signal": "SIGKILL", "reason": "Terminated by controller"})
}

func terminalNoProgram(u *user) {
	cmd := &contracts.UtilityCommandStart{CommandID: "none", Command: "conformance-no-such-program", ShellMode: contracts.ShellModeDirect, TerminalMode: contracts.TerminalPTY}
	from := len(u.log)
	u.denied(cmd, refusal{rule: "5.1:terminal", id: "none"})
	u.still("5.1:terminal", from, about("none"))
	u.terminal("5.1:terminal", "echo fine").shows("5.1:terminal", "fine\n")
	u.start("5.1:terminal", &contracts.UtilityCommandStart{CommandID: "none", Command: "true"}).exits("5.1:terminal", fields{"success": true})
}

func terminalDirect(u *user) {
	j := u.start("5.1", &contracts.UtilityCommandStart{Command: `sh -c 'test -t 1 && printf %s "$1"' sh 'a b'`,
		ShellMode: contracts.ShellModeDirect, TerminalMode: contracts.TerminalPTY})
	j.shows("5.1", "a b")
}
