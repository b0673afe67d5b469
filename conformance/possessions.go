package conformance

import (
	"github.com/seed-028515a8/maestro/contracts"
)

// possessions judges whose commands and watches are: 3.9, A12, A29, R101.
func possessions() []Scenario {
	shared := Needs{Transport: Socket, Operation: contracts.OperationCommandExec}
	return []Scenario{
		{Name: "owner/commands", Title: "Nobody else can end, feed or resize a command", Rules: []string{"A29", "R101"}, Needs: shared, Run: ownedCommands},
		{Name: "owner/watches", Title: "Nobody else can stop a watch", Rules: []string{"A29", "R101"}, Needs: shared, Run: ownedWatches},
		{Name: "owner/ids-are-shared", Title: "An id is taken for everybody in the session", Rules: []string{"R83"}, Needs: shared, Run: sharedIDs},
		{Name: "owner/leaves", Title: "With a connection its commands and watches end, and nobody else's", Rules: []string{"R101", "A12"}, Needs: shared, Run: ownerLeaves},
		{Name: "owner/comes-back", Title: "A connection that comes back in time has its commands and watches still", Rules: []string{"R101", "9.3"}, Needs: shared, Run: ownerComesBack},
		{Name: "owner/other-session", Title: "Another session has the same ids for its own", Rules: []string{"R64"}, Needs: shared, Run: otherSessionsIDs},
	}
}

// second returns another user of the session, who takes control.
func (s *Session) second() *user {
	return &user{Peer: s.attach("bob", entry{role: contracts.RoleController, take: "1"})}
}

// sleeper starts a command that takes input and has a terminal.
func (u *user) sleeper(id string) *job {
	return u.start("R84", &contracts.UtilityCommandStart{CommandID: id, Command: "exec sleep 60", AllowStdin: true, TerminalMode: contracts.TerminalPTY})
}

func ownedCommands(s *Session) {
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
}

func ownedWatches(s *Session) {
	alice := s.user(contracts.OperationFileWatch)
	alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "hers"})
	bob := s.second()
	bob.denied(&contracts.UtilityFileWatchStop{WatchID: "hers"},
		refusal{rule: "A29", text: "Headless file watch hers is owned by another connection", code: contracts.CodeAccessDenied})
	bob.still("A29", 0, message("utility_file_watch_stopped"))
}

func sharedIDs(s *Session) {
	alice := s.user(contracts.OperationFileWatch)
	alice.sleeper("one")
	alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "one"})
	bob := s.second()
	bob.denied(&contracts.UtilityCommandStart{CommandID: "one", Command: "true"}, refusal{rule: "R83", text: "Utility command already exists: one"})
	bob.denied(&contracts.UtilityFileWatchStart{WatchID: "one"}, refusal{rule: "5.4", text: "Utility file watch already exists: one"})
}

func ownerLeaves(s *Session) {
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
}

func ownerComesBack(s *Session) {
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
}

func otherSessionsIDs(s *Session) {
	alice := s.user()
	hers := alice.sleeper("same")
	carol := &user{Peer: s.attach("carol", entry{session: s.ID + "-other", create: true, role: contracts.RoleController})}
	carol.sleeper("same").end()
	alice.still("R64", hers.from, message("utility_command_exited"))
	hers.end()
}
