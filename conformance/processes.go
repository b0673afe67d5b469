package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// processes judges that nothing of a command outlives it: 5.1, R19, R87.
func processes() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	onStdio := Needs{Transport: Stdio, Operation: contracts.OperationCommandExec}
	return []Scenario{
		exec.settled("tree/terminated", "R87", "Terminating a command ends its descendants", func(u *user) {
			j := u.sh("R87", u.family(""))
			u.born("R87", 3)
			u.do("R87", &contracts.UtilityCommandTerminate{CommandID: j.id})
			j.exits("R86", fields{"success": false, "signal": "SIGTERM"})
			u.gone("R87")
		}),
		exec.settled("tree/killed", "R86", "Killing a command kills its descendants", func(u *user) {
			j := u.sh("R86", u.family(""))
			u.born("R86", 3)
			u.do("R86", &contracts.UtilityCommandTerminate{CommandID: j.id, Force: true})
			j.exits("R86", fields{"success": false, "signal": "SIGKILL"})
			u.gone("R86")
		}),
		exec.settled("tree/stubborn", "R87", "Descendants that ignore SIGTERM are killed too", func(u *user) {
			j := u.sh("R87", u.family("trap '' TERM; "))
			u.born("R87", 3)
			u.do("R87", &contracts.UtilityCommandTerminate{CommandID: j.id})
			j.exits("R87", fields{"success": false, "signal": "SIGKILL", "reason": "Terminated by controller"})
			u.gone("R87")
		}),
		exec.settled("tree/on-terminal", "R87", "Terminating a terminal ends everything on it", func(u *user) {
			j := u.terminal("R87", u.family(""))
			u.born("R87", 3)
			u.do("R87", &contracts.UtilityCommandTerminate{CommandID: j.id})
			j.exits("R86", fields{"success": false, "reason": "Terminated by controller"})
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
	}
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
	deadline := time.Now().Add(u.s.config.Patience)
	for {
		j := u.sh(rule, command)
		f := j.await(rule, message("utility_command_exited"))
		if f.at("success") == true {
			return
		}
		if time.Now().After(deadline) {
			u.s.fail(rule, "expected %s within %s, got %s", what, u.s.config.Patience, show(j.output("stdout")))
		}
		u.s.pause(rule, 20*time.Millisecond)
	}
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
		if status, err := u.link.Wait(ctx); err != nil || status != 0 {
			s.fail("R19:children", "expected exit status 0, got %d (%v)", status, err)
		}
		witness.gone("R19:children")
		witness.leave()
	}
}
