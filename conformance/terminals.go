package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// terminals judges commands on a terminal, how clients end commands, that nothing of a
// command outlives it, and what interrupt, cancel and shutdown say to commands and
// watches: 3.5, 3.8, 5.1, R19, R67, R82, R86, R87, R89 to R91.
func terminals() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	onStdio := Needs{Transport: Stdio, Operation: contracts.OperationCommandExec}
	return []Scenario{
		exec.using("terminal/is-one", "R91", "A command in pty mode has a terminal as input, output and error output, and controls it", func(u *user) {
			j := u.terminal("R91", "for fd in 0 1 2; do test -t $fd && echo $fd; done; echo here > /dev/tty")
			u.s.equal("2.2", "terminal_mode", j.started.str("terminal_mode"), "pty")
			j.exits("R91", fields{"success": true, "exit_code": 0, "signal": nil, "reason": nil})
			j.shows("R91", "0\n1\n2\nhere\n")
			u.sh("R91", "test -t 0 || test -t 1 || test -t 2 || echo none").prints("R91", "none\n")
		}),
		exec.using("terminal/one-stream", "5.1 2.2", "All output of a terminal is standard output", func(u *user) {
			j := u.terminal("5.1", "echo out; echo err >&2; exit 4")
			j.exits("5.1", fields{"success": false, "exit_code": 4}).shows("5.1", "out\nerr\n")
			u.s.equal("2.2", "stderr of a terminal", j.output("stderr"), "")
		}),
		exec.using("terminal/kind", "5.1", "TERM names a terminal, or what the client wants", func(u *user) {
			j := u.start("5.1", &contracts.UtilityCommandStart{Command: "echo $TERM", TerminalMode: contracts.TerminalPTY, Env: map[string]string{"TERM": "vt100"}})
			j.shows("5.1", "vt100\n")
			j = u.terminal("5.1", `test -n "$TERM" && echo some`)
			j.shows("5.1:term", "some\n")
		}),
		exec.using("terminal/typing", "R89", "What a client types is echoed and read", func(u *user) {
			j := u.terminal("R89", "echo ready; read line; echo got $line").says("R89", "ready")
			j.write("R89", "héllo\n", false)
			j.shows("R89", "ready\nhéllo\ngot héllo\n")
		}),
		exec.using("terminal/not-enabled", "R88 5.1", "Without allow_stdin a client cannot type", func(u *user) {
			j := u.start("R88", &contracts.UtilityCommandStart{Command: "test -t 0 && echo ready; exec sleep 600", TerminalMode: contracts.TerminalPTY})
			j.says("R88", "ready")
			u.denied(&contracts.UtilityCommandStdin{CommandID: j.id, Content: "x"},
				refusal{rule: "R88", text: "Utility command stdin is not enabled: " + j.id, id: j.id})
			j.end()
		}),
		exec.using("terminal/end-of-input", "R89", "eof types Ctrl-D, after which more can be typed", func(u *user) {
			j := u.terminal("R89", "stty -echo; echo ready; cat; echo first; cat; echo second").says("R89", "ready")
			j.write("R89", "one\n", true)
			j.says("R89", "first")
			j.write("R89", "two\n", false)
			j.says("R89", "two")
			j.write("R89", "", true)
			j.exits("R89", fields{"success": true}).shows("R89", "ready\none\nfirst\ntwo\nsecond\n")
		}),
		exec.using("terminal/ctrl-c", "5.1", "Ctrl-C interrupts the program", func(u *user) {
			j := u.terminal("5.1", "trap 'echo caught; exit 7' INT; echo ready; "+lasting).says("5.1", "ready")
			j.write("5.1", "\x03", false)
			j.exits("5.1", fields{"success": false, "exit_code": 7, "signal": nil, "reason": nil})
			got := j.lines()
			u.s.failIf(!strings.HasSuffix(got, "caught\n"), "5.1", "expected the program to be interrupted by Ctrl-C, got %s", show(got))
		}),
		exec.using("terminal/large", "5.1", "A lot of output of a terminal comes complete and in order", func(u *user) {
			j := u.terminal("5.1", "seq 1 40000; exit 2").exits("5.1", fields{"exit_code": 2})
			j.whole("5.1", "stdout", strings.ReplaceAll(counted(40_000), "\n", "\r\n"))
		}),
		exec.using("terminal/cut-characters", "R93", "A character that is written to a terminal in pieces comes whole", func(u *user) {
			u.terminal("R93", `printf 'a\303'; sleep 0.2; printf '\251b\342'; sleep 0.2; printf '\202'; sleep 0.2; printf '\254.'`).shows("R93", "aéb€.")
		}),
		exec.using("terminal/terminate", "R86", "A terminated command on a terminal says so", terminated(contracts.TerminalPTY)),
		exec.using("terminal/escalates", "R87", "A command on a terminal that ignores SIGTERM is killed", func(u *user) {
			j := u.terminal("R87:terminal", "trap '' TERM HUP; echo ready; "+lasting).says("R87:terminal", "ready")
			j.terminate("R87:terminal", false).exits("R87:terminal", fields{"success": false, "exit_code": nil, "signal": "SIGKILL", "reason": "Terminated by controller"})
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
		exec.using("terminal/size", "R91", "A terminal has the size asked for, or 80 by 24", func(u *user) {
			for _, c := range []struct {
				columns, rows *int64
				want          string
			}{{nil, nil, "24 80"}, {new(int64(132)), new(int64(43)), "43 132"}, {new(int64(200)), nil, "24 200"}, {nil, new(int64(50)), "50 80"}} {
				j := u.start("R91", &contracts.UtilityCommandStart{Command: "stty size", TerminalMode: contracts.TerminalPTY, Columns: c.columns, Rows: c.rows})
				got := show(j.started.at("rows")) + " " + show(j.started.at("columns"))
				u.s.failIf(got != c.want, "R91", "expected a start with rows and columns %s, got %s", c.want, got)
				j.shows("R91", c.want+"\n")
			}
		}),
		exec.using("terminal/bad-size", "5.1", "A size that is none is refused, and the id stays free", func(u *user) {
			sized := func(columns, rows int64) contracts.UtilityCommandStart {
				return contracts.UtilityCommandStart{Command: "true", TerminalMode: contracts.TerminalPTY, Columns: &columns, Rows: &rows}
			}
			u.refusedFree("5.1", "Utility command columns must be a positive integer", sized(0, 24), sized(-5, 24))
			u.refusedFree("5.1", "Utility command rows must be a positive integer", sized(80, 0), sized(80, -1))
			large := sized(65_536, 24)
			large.CommandID = "large"
			u.denied(&large, refusal{rule: "5.1:size", id: "large"})
			u.none("5.1:size", 0, about("large"))
		}),
		exec.using("terminal/resize", "R91", "A resize is confirmed, and the program learns it", func(u *user) {
			j := u.terminal("R91", "stty -echo; trap 'echo told; stty size' WINCH; echo ready; "+lasting).says("R91", "ready")
			j.resizes(100, 50)
			j.says("R91", "told\r\n50 100\r\n")
			j.end()
			k := u.terminal("R91", "stty -echo; echo ready; while read x; do stty size; done").says("R91", "ready")
			for _, size := range [][2]int64{{90, 40}, {65_535, 1}, {1, 65_535}, {80, 24}} {
				k.resizes(size[0], size[1])
				k.write("R91", "size?\n", false)
				k.says("R91", fmt.Sprintf("\n%d %d\r\n", size[1], size[0]))
			}
			from := len(u.log)
			u.denied(&contracts.UtilityCommandResize{CommandID: k.id, Columns: 0, Rows: 10}, refusal{rule: "5.1", id: k.id})
			u.none("R91", from, message("utility_command_resized"))
			k.end()
		}),
		exec.using("terminal/resize-in-state", "4.2", "A state has the size of a terminal after a resize", func(u *user) {
			j := u.terminal("4.2", "exec sleep 600")
			u.do("4.2", &contracts.UtilityCommandResize{CommandID: j.id, Columns: 90, Rows: 30})
			j.await("4.2", message("utility_command_resized"))
			e := active(u.state(), j.id)
			u.s.failIf(!same(e["columns"], 90) || !same(e["rows"], 30) || e["terminal_mode"] != "pty",
				"4.2", "expected a terminal of 90 by 30 in the state, got %s", show(e))
			j.end()
		}),
		exec.using("terminal/pipe-has-no-size", "R90", "A pipe has no size, at the start or later", func(u *user) {
			u.refusedFree("R90", "Utility command columns and rows require terminal_mode=pty",
				contracts.UtilityCommandStart{Command: "true", Columns: new(int64(80))},
				contracts.UtilityCommandStart{Command: "true", Rows: new(int64(24)), TerminalMode: contracts.TerminalPipe})
			j := u.sh("R90", "exec sleep 600")
			u.denied(&contracts.UtilityCommandResize{CommandID: j.id, Columns: 80, Rows: 24},
				refusal{rule: "R90", text: "Utility command resize is only supported for PTY commands: " + j.id, id: j.id})
			u.none("R90", 0, message("utility_command_resized"))
			j.end()
		}),
		exec.using("terminate/asks-first", "5.1", "A command that is asked to end may say something and exit", func(u *user) {
			j := u.sh("5.1", "trap 'echo bye; exit 6' TERM; echo ready; "+lasting).says("5.1", "ready")
			j.terminate("5.1", false).exits("5.1", fields{"success": false, "exit_code": 6, "signal": nil, "reason": "Terminated by controller"})
			j.prints("5.1", "ready\nbye\n")
		}),
		exec.using("terminate/escalates", "R87", "A command that ignores SIGTERM is killed, for the reason first given", func(u *user) {
			j := u.stubborn("R87")
			j.terminate("R87", false).exits("R87", fields{"success": false, "exit_code": nil, "signal": "SIGKILL", "reason": "Terminated by controller"})
		}),
		exec.using("terminate/hurried", "5.1", "Force hurries a graceful end, whose reason stays", func(u *user) {
			j := u.stubborn("5.1").terminate("5.1", false)
			j.terminate("5.1", true).exits("5.1", fields{"success": false, "signal": "SIGKILL", "reason": "Terminated by controller"})
		}),
		exec.using("terminate/ended", "R82", "Ending what has ended says nothing", func(u *user) {
			j := u.sh("R82", "true").exits("R82", fields{"success": true})
			from := len(u.log)
			j.terminate("R82", false).terminate("R82", true)
			u.still("R82", from, anyOf(toolError, about(j.id)))
		}),
		exec.using("terminate/reserved", "R83", "The id of a command stays taken until it has exited", func(u *user) {
			j := u.stubborn("R83").terminate("R83", false)
			u.try(&contracts.UtilityCommandStart{CommandID: j.id, Command: "true"}) // the watch refuses a start before the exit
			j.exits("R83", fields{"signal": "SIGKILL"})
		}),
		exec.settled("tree/terminated", "R87", "Terminating a command ends its descendants",
			treeEnds((*user).sh, "R87", "R86", "", false, fields{"success": false, "signal": "SIGTERM"})),
		exec.settled("tree/killed", "R86", "Killing a command kills its descendants",
			treeEnds((*user).sh, "R86", "R86", "", true, fields{"success": false, "signal": "SIGKILL"})),
		exec.settled("tree/stubborn", "R87", "Descendants that ignore SIGTERM are killed too",
			treeEnds((*user).sh, "R87", "R87", "trap '' TERM; ", false, fields{"success": false, "signal": "SIGKILL", "reason": "Terminated by controller"})),
		exec.settled("tree/on-terminal", "R87", "Terminating a terminal ends everything on it",
			treeEnds((*user).terminal, "R87", "R86", "", false, fields{"success": false, "reason": "Terminated by controller"})),
		exec.settled("tree/background", "5.1", "A background process that holds the output delays the exit by two seconds, and does not outlive it", func(u *user) {
			j := u.sh("5.1:background", "sleep 600 & echo $! > "+u.rel+"/pids; echo done; exit 3")
			j.exits("5.1:background", fields{"success": false, "exit_code": 3, "signal": nil, "reason": nil})
			j.prints("5.1:background", "done\n")
			u.gone("5.1:background")
		}).slow(),
		exec.using("tree/late-words", "5.1", "What a background process says soon after the exit is told before it", func(u *user) {
			j := u.sh("5.1", "(sleep 0.4; echo late) & echo soon")
			j.exits("5.1", fields{"success": true, "exit_code": 0}).prints("5.1", "soon\nlate\n")
		}),
		onStdio.scenario("tree/end-of-input", "R19", "After the end of input nothing of a command is left", leavesNothing(func(p *Peer) { _ = p.link.CloseInput() })).slow(),
		onStdio.scenario("tree/shutdown", "R19 R18 3.8", "After a shutdown nothing of a command is left", leavesNothing(func(p *Peer) { p.command(&contracts.Shutdown{}) })).slow(),
		exec.scenario("reason/interrupt", "R67 3.5", "interrupt ends commands and watches, and says so", endedBy("Interrupted", &contracts.Interrupt{})),
		exec.scenario("reason/cancel", "R67 3.5", "cancel ends commands and watches, and says so", endedBy("Cancelled", &contracts.Cancel{})),
		exec.scenario("reason/shutdown", "3.8 3.5", "shutdown ends commands and watches, and says so", endedBy("Headless runtime shutdown", &contracts.Shutdown{})),
		exec.using("reason/stubborn", "3.5 4.3", "An interrupted command that ignores it is killed, and its id is taken until then", func(u *user) {
			j := u.stubborn("3.5")
			u.do("3.5", &contracts.Interrupt{})
			// A server may refuse the id or hold the start until the id is free.
			u.try(&contracts.UtilityCommandStart{CommandID: j.id, Command: "true"})
			end := j.exits("3.5", fields{"success": false, "signal": "SIGKILL", "reason": "Interrupted while utility command was still running"}).exited
			for _, f := range u.log[slices.Index(u.log, j.started)+1:] {
				if f == end {
					break
				}
				u.s.failIf(f.Type == "utility_command_started" && f.str("command_id") == j.id,
					"4.3:reserved", "expected the id to be taken until the command has exited, got %s", abridge(f.Raw, maxTraceText))
			}
			u.sh("4.3:reserved", "echo again").prints("4.3:reserved", "again\n")
		}),
		exec.using("reason/nothing-active", "R68", "interrupt with no command or watch says nothing about any", func(u *user) {
			u.sh("R68", "true").exits("R68", fields{"success": true})
			from := len(u.log)
			u.do("R68", &contracts.Interrupt{})
			u.still("R68", from, anyOf(message("utility_command_exited"), message("utility_file_watch_stopped"), toolError))
		}),
		exec.using("reason/afterwards", "R67 R69", "After an interrupt commands and watches can be started again", func(u *user) {
			j := u.sh("R67", "exec sleep 600")
			u.do("R67", &contracts.Interrupt{})
			j.exits("R67", fields{"success": false})
			u.start("R67", &contracts.UtilityCommandStart{CommandID: j.id, Command: "echo again"}).prints("R67", "again\n")
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
	j.u.s.equal(rule, "what the terminal of "+j.id+" shows", j.lines(), text)
}

func (j *job) resizes(columns, rows int64) {
	j.u.do("R91", &contracts.UtilityCommandResize{CommandID: j.id, Columns: columns, Rows: rows})
	j.await("R91", message("utility_command_resized").with("columns", int(columns)).with("rows", int(rows)))
}

// lasting is what commands do that are ended: nothing, and not forever if they
// are not. A shell looks at its traps all the time.
const lasting = "n=0; while [ $n -lt 2400 ]; do n=$((n+1)); sleep 0.05; done"

// stubborn starts a command that only a kill ends.
func (u *user) stubborn(rule string) *job {
	return u.sh(rule, "trap '' TERM; echo ready; "+lasting).says(rule, "ready")
}

// family is a command with a child and a grandchild, which write their pids to a
// file and then wait. trap is what each does first.
func (u *user) family(trap string) string {
	one := func(rest string) string { return trap + "echo $$ >> " + u.rel + "/pids; " + rest + lasting }
	quoted := func(command string) string { return "'" + strings.ReplaceAll(command, "'", `'\''`) + "'" }
	grandchild := "sh -c " + quoted(one("")) + " & "
	child := "sh -c " + quoted(one(grandchild)) + " & "
	return one(child)
}

// treeEnds ends a family that start starts, and fails if any of it is left or the command
// does not exit as wanted.
func treeEnds(start func(*user, string, string) *job, rule, exitRule, trap string, force bool, want fields) func(*user) {
	return func(u *user) {
		j := start(u, rule, u.family(trap))
		u.born(rule, 3)
		j.terminate(rule, force).exits(exitRule, want)
		u.gone(rule)
	}
}

// born waits until a command's processes have written their pids.
func (u *user) born(rule string, n int) {
	u.eventually(rule, fmt.Sprintf("%d processes", n), fmt.Sprintf(`[ "$(cat %s/pids 2>/dev/null | wc -l)" -eq %d ]`, u.rel, n))
}

// eventually tries a command until it succeeds.
func (u *user) eventually(rule, what, command string) {
	u.s.until(rule, what, func() (bool, string) {
		j := u.sh(rule, command)
		return j.await(rule, message("utility_command_exited")).at("success") == true, show(j.output("stdout"))
	})
}

// extinct lists the processes of a file that are alive. A process that ended and
// that nobody asked about is not.
func extinct(file string) string {
	return "alive=; for p in $(cat " + file + "); do kill -0 $p 2>/dev/null && ! grep -qs '^State:.*[ZX]' /proc/$p/status && alive=\"$alive $p\"; done; echo $alive; [ -z \"$alive\" ]"
}

func (u *user) gone(rule string) {
	u.eventually(rule, "none of the command's processes to be left", extinct(u.rel+"/pids"))
}

// leavesNothing ends a server with a command on it and looks what is left, through
// another one in the same workspace.
func leavesNothing(end func(*Peer)) func(*Session) {
	return func(s *Session) {
		u, witness := s.user(), s.user()
		u.settle()
		witness.root, witness.home, witness.rel = u.root, u.home, u.rel
		defer witness.leave()
		j := u.sh("R19:children", u.family("trap '' TERM; "))
		u.born("R19:children", 3)
		end(u.Peer)
		j.exits("R19:children", fields{"success": false, "reason": "Headless runtime shutdown while utility command was still running"})
		ctx, cancel := s.within(s.config.Patience + s.exitTime())
		defer cancel()
		for u.pull(ctx) {
		}
		status, err := u.link.Wait(ctx)
		s.failIf(err != nil || status != 0, "R19:children", "expected exit status 0, got %d (%v)", status, err)
		witness.gone("R19:children")
	}
}

func endedBy(word string, cmd contracts.Command) func(*Session) {
	return func(s *Session) {
		u := s.user(contracts.OperationFileWatch)
		jobs := []*job{u.sh("3.5", "exec sleep 600"), u.terminal("3.5", "exec sleep 600"), u.sh("3.5", "exec sleep 601")}
		u.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "w"})
		u.await("5.4", 0, message("utility_file_watch_started"))
		u.try(cmd)
		for _, j := range jobs {
			j.exits("3.5", fields{"success": false, "reason": word + " while utility command was still running"})
		}
		u.await("3.5", 0, message("utility_file_watch_stopped").with("watch_id", "w").
			with("reason", word+" while file watch was still running"))
	}
}

func terminated(mode contracts.TerminalMode) func(*user) {
	return func(u *user) {
		for _, c := range []struct {
			force          bool
			signal, reason string
		}{{false, "SIGTERM", "Terminated by controller"}, {true, "SIGKILL", "Force terminated by controller"}} {
			j := u.start("R86", &contracts.UtilityCommandStart{Command: "echo ready; exec sleep 600", TerminalMode: mode}).says("R86", "ready")
			j.terminate("R86", c.force).exits("R86", fields{"success": false, "exit_code": nil, "signal": c.signal, "reason": c.reason})
		}
	}
}
