package conformance

import (
	"path"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// anywhere is the need for a utility operation, on any transport.
func anywhere(op contracts.UtilityOperation) Needs {
	return Needs{Transport: Anywhere, Operation: op}
}

// commandStarts judges where and with what commands start: 2.2, 5.1, R94.
func commandStarts() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
		exec.settled("command/started", "R84 2.2", "A start tells what runs, where, how, and whose it is", func(u *user) {
			j := u.start("R84", &contracts.UtilityCommandStart{CommandID: "told", Command: "true", Cwd: new(u.home)})
			u.s.holds("2.2", j.started, fields{"command_id": "told", "command": "true", "shell_mode": "shell", "terminal_mode": "pipe", "columns": nil, "rows": nil})
			j.exits("R85", fields{"success": true, "exit_code": 0, "signal": nil, "reason": nil})
			u.s.holds("2.2:optional", j.started, fields{"cwd": u.home, "owner_connection_id": u.owner()})
			if number(j.started.at("pid")) <= 1 {
				u.s.fail("2.2:optional", "expected the pid of a process, got %s", show(j.started.at("pid")))
			}
			k := u.sh("R84", "echo $$")
			k.prints("2.2:optional", show(k.started.at("pid"))+"\n")
		}),
		exec.settled("command/cwd", "5.0 R94", "A command runs where it is told, by a relative or an absolute path or a link", func(u *user) {
			u.shell("cd " + u.rel + " && mkdir -p sub/deep ..cache && ln -s sub link")
			for _, j := range []*job{u.sh("5.0", "pwd -P"), u.start("5.0", &contracts.UtilityCommandStart{Command: "pwd -P", Cwd: new(u.root)})} {
				j.prints("5.0", u.root+"\n")
			}
			u.checkDirectories("5.0", map[string]string{u.home + "/sub/deep": "sub/deep", u.home + "/sub/../sub/deep/": "sub/deep", u.home + "/link": "sub"})
			u.checkDirectories("5.0:relative", map[string]string{u.rel + "/sub": "sub", u.rel + "/sub/../sub/deep/": "sub/deep",
				u.rel + "/link": "sub", u.rel + "/..cache": "..cache", "./" + u.rel: ""})
		}),
		exec.using("command/environment", "5.1", "Variables are laid over the environment of the server", func(u *user) {
			j := u.start("5.1", &contracts.UtilityCommandStart{Env: map[string]string{"CONFORMANCE_WORD": "a b'c\"", "CONFORMANCE_EMPTY": "", "LANG": "conformance"},
				Command: `printf '%s|' "$CONFORMANCE_WORD" "${CONFORMANCE_EMPTY-unset}" "$LANG" "${PATH:+path}" "${CONFORMANCE_OTHER-unset}"`})
			j.prints("5.1", `a b'c"||conformance|path|unset|`)
			u.sh("5.1", `printf '%s' "${CONFORMANCE_WORD-unset}"`).prints("5.1", "unset")
		}),
		// noCredentials gives a server on stdio some secrets. Elsewhere nothing is known
		// of its environment but that no name in it may look like one.
		exec.scenario("command/no-credentials", "5.1", "Variables that look like credentials are not passed on", func(s *Session) {
			secrets := []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "CONFORMANCE_ACCESS_TOKEN", "AWS_SECRET_ACCESS_KEY"}
			for _, name := range secrets {
				s.environ = append(s.environ, name+"=conformance-secret")
			}
			u := s.user()
			for _, mode := range []contracts.TerminalMode{contracts.TerminalPipe, contracts.TerminalPTY} {
				j := u.start("5.1", &contracts.UtilityCommandStart{Command: "env", TerminalMode: mode})
				j.exits("5.1", fields{"success": true})
				for line := range strings.Lines(j.output("stdout")) {
					name, _, _ := strings.Cut(line, "=")
					if slices.Contains(secrets, name) || strings.Contains(line, "conformance-secret") {
						s.fail("5.1:credentials", "expected no credential in the environment of a command, got %s", name)
					}
				}
			}
			u.start("5.1", &contracts.UtilityCommandStart{Command: "echo $CONFORMANCE_ACCESS_TOKEN", Env: map[string]string{"CONFORMANCE_ACCESS_TOKEN": "the client's own"}}).
				prints("5.1", "the client's own\n")
		}),
		exec.using("command/exit-code", "R85 5.1", "An exit code other than 0 is no success, and has no reason", func(u *user) {
			u.sh("R85", "exit 3").exits("R85", fields{"success": false, "exit_code": 3, "signal": nil, "reason": nil})
			u.sh("R85", "exit 143").exits("R85", fields{"success": false, "exit_code": 143, "signal": nil, "reason": nil})
			u.start("R85", &contracts.UtilityCommandStart{Command: "false", ShellMode: contracts.ShellModeDirect}).
				exits("R85", fields{"success": false, "exit_code": 1})
		}),
		exec.using("command/killed", "5.1", "A command that a signal ended by itself has its name, no code and no reason", func(u *user) {
			for _, name := range []string{"TERM", "KILL", "HUP", "USR1"} {
				f := u.sh("5.1", "kill -"+name+" $$; sleep 60").
					exits("5.1", fields{"success": false, "exit_code": nil, "signal": "SIG" + name, "reason": nil})
				if _, present := f.Fields["exit_code"]; !present {
					u.s.advise("0.2:both", "expected exit_code null beside the signal, got %s", abridge(f.Raw, maxTraceText))
				}
			}
		}),
		exec.using("command/no-program", "5.1", "A program that is not there starts without a pid and exits with the reason", func(u *user) {
			for _, program := range []string{"conformance-no-such-program", "/conformance/no/such/program"} {
				j := u.start("5.1", &contracts.UtilityCommandStart{CommandID: "none", Command: program + " with arguments", ShellMode: contracts.ShellModeDirect})
				if pid := j.started.at("pid"); pid != nil {
					u.s.fail("5.1", "expected no pid of a program that is not there, got %s", show(pid))
				}
				if f := j.exits("5.1", fields{"success": false, "signal": nil}); f.str("reason") == "" {
					u.s.fail("5.1", "expected the reason why nothing runs, got %s", abridge(f.Raw, maxTraceText))
				}
			}
			u.sh("5.1", "conformance-no-such-program 2>/dev/null").exits("5.1", fields{"success": false, "exit_code": 127})
		}),
		exec.using("command/side-by-side", "1.7 R84", "Commands run side by side and end when they end", sideBySide),
		exec.using("command/many", "5.1", "More commands at once than 32 are refused, and the id stays free", func(u *user) {
			var jobs []*job
			for range 32 {
				jobs = append(jobs, u.sh("5.1:limit", "exec sleep 60"))
			}
			one := &contracts.UtilityCommandStart{CommandID: "extra", Command: "true"}
			u.denied(one, refusal{rule: "5.1:limit", text: "Too many utility commands", id: "extra"})
			u.none("5.1:limit", 0, about("extra"))
			jobs[0].end()
			u.start("5.1:limit", one).exits("5.1:limit", fields{"success": true})
			for _, j := range jobs[1:] {
				u.do("R86", &contracts.UtilityCommandTerminate{CommandID: j.id, Force: true})
			}
			for _, j := range jobs[1:] {
				j.exits("R86", fields{"signal": "SIGKILL"})
			}
		}),
	}
}

// checkDirectories fails unless commands run in the directories that their start names, given
// with where they are in the user's own.
func (u *user) checkDirectories(rule string, directories map[string]string) {
	for given, want := range directories {
		j := u.start(rule, &contracts.UtilityCommandStart{Command: "pwd -P", Cwd: new(given)})
		if cwd := j.started.str("cwd"); !path.IsAbs(cwd) {
			u.s.advise("2.2:optional", "expected an absolute cwd for %q, got %q", given, cwd)
		}
		j.prints(rule, path.Join(u.home, want)+"\n")
	}
}

func sideBySide(u *user) {
	slow := u.start("1.7", &contracts.UtilityCommandStart{Command: "read x; echo slow", AllowStdin: true})
	quick := u.sh("1.7", "echo quick")
	quick.prints("1.7", "quick\n")
	u.none("1.7", slow.from, message("utility_command_exited").with("command_id", slow.id))
	u.do("1.7", &contracts.UtilityCommandStdin{CommandID: slow.id, Content: "\n"})
	slow.prints("1.7", "slow\n")
}
