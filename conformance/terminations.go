package conformance

import (
	"github.com/seed-028515a8/maestro/contracts"
)

// terminations judges how clients end commands: 5.1, R82, R86, R87.
func terminations() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
		exec.using("terminate/asks-first", "5.1", "A command that is asked to end may say something and exit", func(u *user) {
			j := u.sh("5.1", "trap 'echo bye; exit 6' TERM; echo ready; "+lasting)
			j.says("5.1", "ready")
			u.do("5.1", &contracts.UtilityCommandTerminate{CommandID: j.id})
			j.exits("5.1", fields{"success": false, "exit_code": 6, "signal": nil, "reason": "Terminated by controller"})
			j.prints("5.1", "ready\nbye\n")
		}),
		exec.using("terminate/escalates", "R87", "A command that ignores SIGTERM is killed, for the reason first given", func(u *user) {
			j := u.stubborn("R87")
			u.do("R87", &contracts.UtilityCommandTerminate{CommandID: j.id})
			j.exits("R87", fields{"success": false, "exit_code": nil, "signal": "SIGKILL", "reason": "Terminated by controller"})
		}),
		exec.using("terminate/hurried", "5.1", "Force hurries a graceful end, whose reason stays", func(u *user) {
			j := u.stubborn("5.1")
			u.do("5.1", &contracts.UtilityCommandTerminate{CommandID: j.id})
			u.do("5.1", &contracts.UtilityCommandTerminate{CommandID: j.id, Force: true})
			j.exits("5.1", fields{"success": false, "signal": "SIGKILL", "reason": "Terminated by controller"})
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
			u.do("R83", &contracts.UtilityCommandTerminate{CommandID: j.id})
			again := &contracts.UtilityCommandStart{CommandID: j.id, Command: "true"}
			u.denied(again, refusal{rule: "R83", text: "Utility command already exists: " + j.id, id: j.id})
			j.exits("R83", fields{"signal": "SIGKILL"})
			u.start("R83", again).exits("R83", fields{"success": true})
		}),
	}
}

// stubborn is a command that only a kill ends.
const stubborn = "trap '' TERM; echo ready; " + lasting

// lasting is what commands do that are ended: nothing, and not forever if they
// are not. A shell looks at its traps all the time.
const lasting = "n=0; while [ $n -lt 600 ]; do n=$((n+1)); sleep 0.05; done"

func (u *user) stubborn(rule string) *job {
	j := u.sh(rule, stubborn)
	j.says(rule, "ready")
	return j
}
