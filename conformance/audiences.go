package conformance

import (
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// audiences judges who may use utilities and who sees what they do: 3.6, 3.7,
// R28, R29, R79, A79.
func audiences() []Scenario {
	return []Scenario{
		Needs{Operation: contracts.OperationCommandExec}.scenario("audience/opt-outs", "3.7", "Utility events cannot be opted out of", func(s *Session) {
			u := &user{Peer: s.operatorWith(s.optingOut(contracts.RoleController, contracts.Notifications()...))}
			u.sh("3.7", "echo seen").prints("3.7", "seen\n")
		}),
		Needs{Operation: contracts.OperationCommandExec}.user("audience/later-hello", "R29 R81 R82", "A later hello takes capabilities away, and what runs goes on", func(_ *Session, u *user) {
			j := u.reading("R29", "cat; "+lasting)
			u.hello(&contracts.Hello{Role: contracts.RoleController, Capabilities: &contracts.Capabilities{
				UtilityOperations: []contracts.UtilityOperation{contracts.OperationFileRead}}})
			u.await("R22", j.from, message("hello_ok"))
			for _, cmd := range []contracts.Command{&contracts.UtilityCommandStart{CommandID: "second", Command: "true"}, &contracts.UtilityCommandStdin{CommandID: j.id, Content: "x"}} {
				u.denied(cmd, refusal{rule: "R81", text: cmd.CommandType() + " requires command_exec capability", code: contracts.CodeUnsupportedCapability})
			}
			u.none("R81", 0, about("second"))
			j.end()
		}),
		sharedCommands.user("audience/own-capabilities", "A79 3.6", "The capabilities of the sender count, not those of another", func(s *Session, alice *user) {
			hers := alice.sleeper("hers")
			h := &contracts.Hello{Role: contracts.RoleController, Capabilities: &contracts.Capabilities{UtilityOperations: []contracts.UtilityOperation{contracts.OperationFileRead}}}
			bob := &user{Peer: s.attach("bob", entry{role: contracts.RoleController, take: "1", hello: h})}
			bob.denied(&contracts.UtilityCommandStart{CommandID: "his", Command: "true"},
				refusal{rule: "A79", text: "utility_command_start requires command_exec capability", code: contracts.CodeUnsupportedCapability})
			bob.denied(&contracts.UtilityFileSearch{SearchID: "his", Query: "x"},
				refusal{rule: "A79", text: "utility_file_search requires file_search capability", code: contracts.CodeUnsupportedCapability})
			alice.still("A79", hers.from, about("his"))
		}),
		sharedCommands.user("audience/viewer", "R28 A37", "A viewer sees what commands do, and can do nothing to them", func(s *Session, alice *user) {
			vera := s.viewer("vera")
			j := alice.reading("A37", "echo shown; cat >/dev/null; "+lasting)
			alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "w"})
			vera.await("A37", 0, message("utility_command_started").with("command_id", j.id))
			vera.await("A37", 0, message("utility_command_output").with("command_id", j.id).with("content", "shown\n"))
			for _, cmd := range []contracts.Command{&contracts.UtilityCommandStart{CommandID: "hers", Command: "true"}, &contracts.UtilityCommandTerminate{CommandID: j.id, Force: true},
				&contracts.UtilityCommandStdin{CommandID: j.id, EOF: true}, &contracts.UtilityFileRead{ReadID: "r", Path: "x"}} {
				vera.refused(vera.command(cmd), refusal{rule: "R28", text: textViewer, code: contracts.CodeAccessDenied})
			}
			alice.still("R28", j.from, anyOf(message("utility_command_exited"), about("hers"), toolError))
			j.end()
			vera.await("A37", 0, message("utility_command_exited").with("command_id", j.id))
		}, contracts.OperationFileWatch),
		sharedCommands.scenario("audience/same-for-all", "A48 2.5", "Everybody sees the same of commands and watches", func(s *Session) {
			alice := s.user(contracts.OperationFileWatch, contracts.OperationFileSearch, contracts.OperationFileRead)
			vera := s.viewer("vera")
			joined := vera.last(message("hello_ok")).Cursor
			alice.busy()
			alice.prompt("the end")
			endTogether(vera, alice.Peer)
			sameSequence(s, "A48", joined, alice.Peer, vera)
		}),
		sharedCommands.user("audience/late", "A49 A66", "Who comes later learns of what runs, and sees its end", func(s *Session, alice *user) {
			j := alice.reading("A66", "echo before; read x; echo after; exit 5").says("A66", "before\n")
			alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "w"})
			vera := s.viewer("vera")
			if e := active(vera.last(control("snapshot")), j.id); e == nil || e["output"] != "before\n" || !same(e["pid"], int(number(j.started.at("pid")))) {
				s.fail("A66", "expected the command with what it wrote, got %s", show(e))
			}
			j.write("A66", "\n", false)
			vera.await("A49", 0, message("utility_command_output").with("command_id", j.id).with("content", "after\n"))
			vera.await("A49", 0, message("utility_command_exited").with("command_id", j.id).with("exit_code", 5))
			alice.do("5.4", &contracts.UtilityFileWatchStop{WatchID: "w"})
			vera.await("A49", 0, message("utility_file_watch_stopped").with("watch_id", "w"))
		}, contracts.OperationFileWatch),
		sharedCommands.user("audience/returning", "A43", "Output that was missed is seen on return", func(s *Session, alice *user) {
			j := alice.reading("A43", "read x; seq 1 20000; read x; exit 6")
			vera := s.viewer("vera")
			vera.fence()
			cursor := vera.watch.cursor
			vera.close()
			j.write("A43", "\n", false)
			j.says("A43", "\n20000\n")
			victor := s.back("victor", cursor, vera.epoch).replays("A43")
			j.write("A43", "\n", false)
			seen := &job{u: &user{Peer: victor}, id: j.id}
			seen.exits("A43", fields{"exit_code": 6})
			seen.whole("A43", "stdout", counted(20_000))
		}),
		sharedCommands.user("audience/slow", "A51 D5", "A viewer that stops reading delays no command, and gets the output whole or a reset", func(s *Session, alice *user) {
			sloth := s.slowly("sloth")
			j := alice.sh("A51", "seq 1 300000").exits("A51", fields{"success": true})
			j.whole("A51", "stdout", counted(300_000))
			alice.prompt("the end")
			sloth.resumeReading()
			if sloth.catchesUp("A51") {
				(&job{u: &user{Peer: sloth}, id: j.id}).whole("D5", "stdout", counted(300_000))
			}
		}),
		sharedCommands.user("audience/replay", "R79 4.2", "Utility events give the state that a snapshot has", func(s *Session, u *user) {
			m := &pilot{s: s, mirror: mirror{p: u.Peer}}
			u.terminal("R79", "exec sleep 60").resizes(99, 33)
			wordy := u.reading("R79", "echo some; echo more >&2; read x; i=0; while [ $i -lt 5000 ]; do echo 'wörter wörter'; i=$((i+1)); done; echo done; "+lasting)
			wordy.says("R79", "more\n")
			u.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "one", IncludePatterns: []string{"none/**"}})
			u.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "two", ExcludePatterns: []string{"**"}, DebounceMS: new(int64(1))})
			m.compare("R79")
			wordy.write("R79", "\n", false)
			wordy.says("R79", "done\n")
			u.do("5.4", &contracts.UtilityFileWatchStop{WatchID: "one"})
			u.sh("R79", "true").exits("R79", fields{"success": true})
			m.compare("R79")
			wordy.end()
			m.compare("R79")
			m.do(&contracts.Interrupt{})
			u.await("R67", 0, message("utility_file_watch_stopped").with("watch_id", "two"))
			m.compare("R79")
		}, contracts.OperationFileWatch),
		anywhere(contracts.OperationFileRead).scenario("audience/reads-in-parallel", "1.7", "Reads and searches are answered, each under its id", settled(manyReads, contracts.OperationFileSearch)),
	}
}

// operatorWith is operator for a hello of the scenario's.
func (s *Session) operatorWith(h *contracts.Hello) *Peer {
	p := s.join("alice", h)
	if offered, known := p.last(message("hello_ok")).at("server_capabilities.utility_operations").([]any); known && len(offered) == 0 {
		s.skip("the server offers no utilities")
	}
	return p
}

func (u *user) busy() {
	u.settle()
	l := u.watch("A48", contracts.UtilityFileWatchStart{DebounceMS: new(int64(10))})
	u.files("f")
	l.reports("A48", contracts.FileCreated, "f")
	j := u.terminal("A48", "read x; stty size")
	j.resizes(100, 30)
	j.write("A48", "\n", false)
	j.says("A48", "30 100")
	u.sh("A48", "seq 1 5000; echo oops >&2; exit 3").exits("A48", fields{"exit_code": 3})
	u.search("A48", "f", nil)
	u.reads("A48", u.all("f"), window{"text", 1, 1, 1, false})
	l.stop()
	u.leave()
}

func manyReads(u *user) {
	names := strings.Fields("a b c d e f g h")
	for _, name := range names {
		u.shell("echo " + name + " > " + u.rel + "/" + name)
	}
	from := len(u.log)
	for _, name := range names {
		u.try(&contracts.UtilityFileRead{ReadID: "read " + name, Path: u.rel + "/" + name})
		u.try(&contracts.UtilityFileSearch{SearchID: "search " + name, Query: "nothing-" + name, Cwd: &u.rel})
	}
	for _, name := range names {
		u.await("1.7", from, message("utility_file_read_result").with("read_id", "read "+name).with("content", name))
		u.await("1.7", from, message("utility_file_search_results").with("search_id", "search "+name).with("query", "nothing-"+name))
	}
}

// sharedCommands are the needs of scenarios about the commands of several clients.
var sharedCommands = Needs{Transport: Socket, Operation: contracts.OperationCommandExec}

// possessions judges whose commands and watches are: 3.9, A12, A29, R101.
func possessions() []Scenario {
	return []Scenario{
		sharedCommands.user("owner/commands", "A29 R101", "Nobody else can end, feed or resize a command", func(s *Session, alice *user) {
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
		sharedCommands.user("owner/watches", "A29 R101", "Nobody else can stop a watch", func(s *Session, alice *user) {
			alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "hers"})
			bob := s.second()
			bob.denied(&contracts.UtilityFileWatchStop{WatchID: "hers"},
				refusal{rule: "A29", text: "Headless file watch hers is owned by another connection", code: contracts.CodeAccessDenied})
			bob.still("A29", 0, message("utility_file_watch_stopped"))
		}, contracts.OperationFileWatch),
		sharedCommands.user("owner/ids-are-shared", "R83", "An id is taken for everybody in the session", func(s *Session, alice *user) {
			alice.sleeper("one")
			alice.do("5.4", &contracts.UtilityFileWatchStart{WatchID: "one"})
			bob := s.second()
			bob.denied(&contracts.UtilityCommandStart{CommandID: "one", Command: "true"}, refusal{rule: "R83", text: "Utility command already exists: one"})
			bob.denied(&contracts.UtilityFileWatchStart{WatchID: "one"}, refusal{rule: "5.4", text: "Utility file watch already exists: one"})
		}, contracts.OperationFileWatch),
		sharedCommands.user("owner/leaves", "R101 A12", "With a connection its commands and watches end, and nobody else's", func(s *Session, alice *user) {
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
		}, contracts.OperationFileWatch),
		sharedCommands.user("owner/comes-back", "R101 9.3", "A connection that comes back in time has its commands and watches still", func(s *Session, alice *user) {
			j := alice.reading("R101", "echo before; read x; echo after; "+lasting).says("R101", "before\n")
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
		}, contracts.OperationFileWatch),
		sharedCommands.user("owner/other-session", "R64", "Another session has the same ids for its own", func(s *Session, alice *user) {
			hers := alice.sleeper("same")
			carol := &user{Peer: s.attach("carol", entry{session: s.ID + "-other", create: true, role: contracts.RoleController})}
			carol.sleeper("same").end()
			alice.still("R64", hers.from, message("utility_command_exited"))
			hers.end()
		}),
	}
}

func (s *Session) second() *user {
	return &user{Peer: s.attach("bob", entry{role: contracts.RoleController, take: "1"})}
}

// sleeper starts a command that takes input and has a terminal.
func (u *user) sleeper(id string) *job {
	return u.start("R84", &contracts.UtilityCommandStart{CommandID: id, Command: "exec sleep 60", AllowStdin: true, TerminalMode: contracts.TerminalPTY})
}
