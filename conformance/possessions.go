package conformance

import (
	"github.com/seed-028515a8/maestro/contracts"
)

// sharedCommands are the needs of scenarios about the commands of several clients.
var sharedCommands = Needs{Transport: Socket, Operation: contracts.OperationCommandExec}

// possessions judges whose commands and watches are: 3.9, A12, A29, R101.
var possessions = []Scenario{
	sharedCommands.scenario("owner/commands", "A29 R101", "Nobody else can end, feed or resize a command", func(s *Session) {
		alice := s.user()
		hers := alice.sleeper("hers")
		bob := s.second()
		for _, cmd := range []contracts.Command{&contracts.UtilityCommandTerminate{CommandID: "hers"}, &contracts.UtilityCommandTerminate{CommandID: "hers", Force: true},
			&contracts.UtilityCommandStdin{CommandID: "hers", Content: "x"}, &contracts.UtilityCommandResize{CommandID: "hers", Columns: 90, Rows: 30}} {
			bob.denied(cmd, refusal{rule: "A29", text: "Headless command hers is owned by another connection", code: contracts.CodeAccessDenied})
		}
		bob.still("A29", 0, anyOf(message("utility_command_resized"), message("utility_command_exited")))
		bob.do("R67", &contracts.Interrupt{})
		hers.exits("A29", fields{"success": false, "reason": "Interrupted while utility command was still running"})
	}),
	sharedCommands.scenario("owner/watches", "A29 R101", "Nobody else can stop a watch", func(s *Session) {
		alice := s.user(contracts.OperationFileWatch)
		alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "hers"})
		bob := s.second()
		bob.denied(&contracts.UtilityFileWatchStop{WatchID: "hers"},
			refusal{rule: "A29", text: "Headless file watch hers is owned by another connection", code: contracts.CodeAccessDenied})
		bob.still("A29", 0, message("utility_file_watch_stopped"))
	}),
	sharedCommands.scenario("owner/ids-are-shared", "R83", "An id is taken for everybody in the session", func(s *Session) {
		alice := s.user(contracts.OperationFileWatch)
		alice.sleeper("one")
		alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "one"})
		bob := s.second()
		bob.denied(&contracts.UtilityCommandStart{CommandID: "one", Command: "true"}, refusal{rule: "R83", text: "Utility command already exists: one"})
		bob.denied(&contracts.UtilityFileWatchStart{WatchID: "one"}, refusal{rule: "5.4", text: "Utility file watch already exists: one"})
	}),
	sharedCommands.scenario("owner/leaves", "R101 A12", "With a connection its commands and watches end, and nobody else's", func(s *Session) {
		alice := s.user(contracts.OperationFileWatch)
		alice.sleeper("hers")
		alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "hers"})
		bob := s.second()
		his := bob.sleeper("his")
		bob.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "his"})
		from := len(bob.log)
		alice.send([]byte(`{"type":"ws.bye"}`))
		bob.await("R101", from, message("utility_command_exited").with("command_id", "hers").
			with("reason", "Owning connection closed while utility command was still running"))
		bob.await("R101", from, message("utility_file_watch_stopped").with("watch_id", "hers").
			with("reason", "Owning connection closed while file watch was still running"))
		f := bob.state()
		if list := listOf(f, "state.active_file_watches"); active(f, "his") == nil || len(list) != 1 || list[0]["watch_id"] != "his" {
			s.fail("R101", "expected what is his to go on, got %s and %s", show(f.at("state.active_utility_commands")), show(list))
		}
		bob.do("5.4", &contracts.UtilityFileWatchStop{WatchID: "his"})
		bob.await("R101", from, message("utility_file_watch_stopped").with("watch_id", "his").with("reason", "Stopped by controller"))
		his.end()
	}),
	sharedCommands.scenario("owner/comes-back", "R101 9.3", "A connection that comes back in time has its commands and watches still", func(s *Session) {
		alice := s.user(contracts.OperationFileWatch)
		j := alice.reading("R101", "echo before; read x; echo after; "+lasting)
		j.says("R101", "before\n")
		alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "hers"})
		alice.fence()
		how := returning(alice.Peer, alice.token)
		alice.close() // the network drops
		again := &user{Peer: s.attach("alice", how)}
		again.isAgain(alice.Peer)
		hers := &job{u: again, id: j.id}
		hers.write("R101", "\n", false)
		hers.says("R101", "after\n")
		again.do("5.4", &contracts.UtilityFileWatchStop{WatchID: "hers"})
		again.await("5.4", 0, message("utility_file_watch_stopped").with("watch_id", "hers").with("reason", "Stopped by controller"))
		hers.end()
	}),
	sharedCommands.scenario("owner/other-session", "R64", "Another session has the same ids for its own", func(s *Session) {
		alice := s.user()
		hers := alice.sleeper("same")
		carol := &user{Peer: s.attach("carol", entry{session: s.ID + "-other", create: true, role: contracts.RoleController})}
		carol.sleeper("same").end()
		alice.still("R64", hers.from, message("utility_command_exited"))
		hers.end()
	}),
}

// second returns another user of the session, who takes control.
func (s *Session) second() *user {
	return &user{Peer: s.attach("bob", entry{role: contracts.RoleController, take: "1"})}
}

// sleeper starts a command that takes input and has a terminal.
func (u *user) sleeper(id string) *job {
	return u.start("R84", &contracts.UtilityCommandStart{CommandID: id, Command: "exec sleep 60", AllowStdin: true, TerminalMode: contracts.TerminalPTY})
}
