package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// terminations judges how clients end commands, that nothing of a command outlives it,
// and what interrupt, cancel and shutdown say to commands and watches: 3.5, 3.8, 5.1,
// R19, R67, R82, R86, R87.
func terminations() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	onStdio := Needs{Transport: Stdio, Operation: contracts.OperationCommandExec}
	return []Scenario{
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
			j := u.stubborn("5.1")
			j.terminate("5.1", false)
			j.terminate("5.1", true).exits("5.1", fields{"success": false, "signal": "SIGKILL", "reason": "Terminated by controller"})
		}),
		exec.using("terminate/ended", "R82", "Ending what has ended says nothing", func(u *user) {
			j := u.sh("R82", "true")
			j.exits("R82", fields{"success": true})
			from := len(u.log)
			for _, force := range []bool{false, true} {
				u.do("R82", &contracts.UtilityCommandTerminate{CommandID: j.id, Force: force})
			}
			u.still("R82", from, anyOf(toolError, about(j.id)))
		}),
		exec.using("terminate/reserved", "R83", "The id of a command stays taken until it has exited", func(u *user) {
			j := u.stubborn("R83")
			j.terminate("R83", false)
			again := &contracts.UtilityCommandStart{CommandID: j.id, Command: "true"}
			u.denied(again, refusal{rule: "R83", text: "Utility command already exists: " + j.id, id: j.id})
			j.exits("R83", fields{"signal": "SIGKILL"})
			u.start("R83", again).exits("R83", fields{"success": true})
		}),
		exec.settled("tree/terminated", "R87", "Terminating a command ends its descendants", func(u *user) {
			j := u.sh("R87", u.family(""))
			u.born("R87", 3)
			j.terminate("R87", false).exits("R86", fields{"success": false, "signal": "SIGTERM"})
			u.gone("R87")
		}),
		exec.settled("tree/killed", "R86", "Killing a command kills its descendants", func(u *user) {
			j := u.sh("R86", u.family(""))
			u.born("R86", 3)
			j.terminate("R86", true).exits("R86", fields{"success": false, "signal": "SIGKILL"})
			u.gone("R86")
		}),
		exec.settled("tree/stubborn", "R87", "Descendants that ignore SIGTERM are killed too", func(u *user) {
			j := u.sh("R87", u.family("trap '' TERM; "))
			u.born("R87", 3)
			j.terminate("R87", false).exits("R87", fields{"success": false, "signal": "SIGKILL", "reason": "Terminated by controller"})
			u.gone("R87")
		}),
		exec.settled("tree/on-terminal", "R87", "Terminating a terminal ends everything on it", func(u *user) {
			j := u.terminal("R87", u.family(""))
			u.born("R87", 3)
			j.terminate("R87", false).exits("R86", fields{"success": false, "reason": "Terminated by controller"})
			u.gone("R87")
		}),
		exec.settled("tree/background", "5.1", "A background process that holds the output delays the exit by two seconds, and does not outlive it", func(u *user) {
			j := u.sh("5.1:background", "sleep 60 & echo $! > "+u.rel+"/pids; echo done; exit 3")
			j.exits("5.1:background", fields{"success": false, "exit_code": 3, "signal": nil, "reason": nil})
			j.prints("5.1:background", "done\n")
			u.gone("5.1:background")
		}).slow(),
		exec.using("tree/late-words", "5.1", "What a background process says soon after the exit is told before it", func(u *user) {
			j := u.sh("5.1", "(sleep 0.4; echo late) & echo soon")
			j.exits("5.1", fields{"success": true, "exit_code": 0})
			j.prints("5.1", "soon\nlate\n")
		}),
		onStdio.scenario("tree/end-of-input", "R19", "After the end of input nothing of a command is left", leavesNothing((*Peer).hangUp)).slow(),
		onStdio.scenario("tree/shutdown", "R19 R18 3.8", "After a shutdown nothing of a command is left", leavesNothing((*Peer).sayShutdown)).slow(),
		exec.scenario("reason/interrupt", "R67 3.5", "interrupt ends commands and watches, and says so", endedBy("Interrupted", &contracts.Interrupt{})),
		exec.scenario("reason/cancel", "R67 3.5", "cancel ends commands and watches, and says so", endedBy("Cancelled", &contracts.Cancel{})),
		exec.scenario("reason/shutdown", "3.8 3.5", "shutdown ends commands and watches, and says so", endedBy("Headless runtime shutdown", &contracts.Shutdown{})),
		exec.using("reason/stubborn", "3.5 4.3", "An interrupted command that ignores it is killed, and its id is taken until then", func(u *user) {
			j := u.stubborn("3.5")
			u.do("3.5", &contracts.Interrupt{})
			// A server may refuse the id or hold the start until the id is free.
			u.try(&contracts.UtilityCommandStart{CommandID: j.id, Command: "true"})
			end := j.exits("3.5", fields{"success": false, "signal": "SIGKILL", "reason": "Interrupted while utility command was still running"})
			for _, f := range u.log[slices.Index(u.log, j.started)+1:] {
				if f == end {
					break
				}
				u.s.require(f.Type != "utility_command_started" || f.str("command_id") != j.id,
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
			j := u.sh("R67", "exec sleep 60")
			u.do("R67", &contracts.Interrupt{})
			j.exits("R67", fields{"success": false})
			u.start("R67", &contracts.UtilityCommandStart{CommandID: j.id, Command: "echo again"}).prints("R67", "again\n")
		}),
	}
}

// stubborn is a command that only a kill ends.
const stubborn = "trap '' TERM; echo ready; " + lasting

// lasting is what commands do that are ended: nothing, and not forever if they
// are not. A shell looks at its traps all the time.
const lasting = "n=0; while [ $n -lt 600 ]; do n=$((n+1)); sleep 0.05; done"

func (u *user) stubborn(rule string) *job {
	j := u.sh(rule, stubborn).says(rule, "ready")
	return j
}

// family is a command with a child and a grandchild, which write their pids to a
// file and then wait. trap is what each does first.
func (u *user) family(trap string) string {
	one := func(rest string) string {
		return trap + "echo $$ >> " + u.rel + "/pids; " + rest + lasting
	}
	quoted := func(command string) string { return "'" + strings.ReplaceAll(command, "'", `'\''`) + "'" }
	grandchild := "sh -c " + quoted(one("")) + " & "
	child := "sh -c " + quoted(one(grandchild)) + " & "
	return one(child)
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

// gone waits until none of the command's processes is left.
func (u *user) gone(rule string) {
	u.eventually(rule, "none of the command's processes to be left", extinct(u.rel+"/pids"))
}

// hangUp and sayShutdown are ways to end a server on stdio.

func (p *Peer) hangUp() { _ = p.link.CloseInput() } // it may be closed

func (p *Peer) sayShutdown() { p.command(&contracts.Shutdown{}) }

// leavesNothing ends a server with a command on it and looks what is left, through
// another one in the same workspace.
func leavesNothing(end func(*Peer)) func(*Session) {
	return func(s *Session) {
		u, witness := s.user(), s.user()
		u.settle()
		witness.root, witness.home, witness.rel = u.root, u.home, u.rel
		j := u.sh("R19:children", u.family("trap '' TERM; "))
		u.born("R19:children", 3)
		end(u.Peer)
		j.exits("R19:children", fields{"success": false, "reason": "Headless runtime shutdown while utility command was still running"})
		ctx, cancel := s.within(s.config.Patience + exitTime)
		defer cancel()
		for u.pull(ctx) {
		}
		status, err := u.link.Wait(ctx)
		s.require(err == nil && status == 0, "R19:children", "expected exit status 0, got %d (%v)", status, err)
		witness.gone("R19:children")
		witness.leave()
	}
}

// endedBy has commands and a watch end by a message.
func endedBy(word string, cmd contracts.Command) func(*Session) {
	return func(s *Session) {
		u := s.user(contracts.OperationFileWatch)
		jobs := []*job{u.sh("3.5", "exec sleep 60"), u.terminal("3.5", "exec sleep 60"), u.sh("3.5", "exec sleep 61")}
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

// terminated is about commands that are ended, on pipes or on a terminal.
func terminated(mode contracts.TerminalMode) func(*user) {
	return func(u *user) {
		for _, c := range []struct {
			force          bool
			signal, reason string
		}{{false, "SIGTERM", "Terminated by controller"}, {true, "SIGKILL", "Force terminated by controller"}} {
			j := u.start("R86", &contracts.UtilityCommandStart{Command: "echo ready; exec sleep 60", TerminalMode: mode}).says("R86", "ready")
			j.terminate("R86", c.force).exits("R86", fields{"success": false, "exit_code": nil, "signal": c.signal, "reason": c.reason})
		}
	}
}
