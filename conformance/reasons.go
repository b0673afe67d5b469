package conformance

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// reasons judges what interrupt, cancel and shutdown say to commands and watches:
// 3.5, 3.8, R67.
func reasons() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
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
				if f.Type == "utility_command_started" && f.str("command_id") == j.id {
					u.s.fail("4.3:reserved", "expected the id to be taken until the command has exited, got %s", abridge(f.Raw, maxTraceText))
				}
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
