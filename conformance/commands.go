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

// commands judges which commands run, where, and as what program: 2.2, 5.0, 5.1, R92, R94.
func commands() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
		exec.settled("command/started", "R84 2.2", "A start tells what runs, where, how, and whose it is", func(u *user) {
			j := u.start("R84", &contracts.UtilityCommandStart{CommandID: "told", Command: "true", Cwd: new(u.home)})
			u.s.holds("2.2", j.started, fields{"command_id": "told", "command": "true", "shell_mode": "shell", "terminal_mode": "pipe", "columns": nil, "rows": nil})
			j.exits("R85", fields{"success": true, "exit_code": 0, "signal": nil, "reason": nil})
			u.s.holds("2.2:optional", j.started, fields{"cwd": u.home, "owner_connection_id": u.owner()})
			u.s.require(number(j.started.at("pid")) > 1,
				"2.2:optional", "expected the pid of a process, got %s", show(j.started.at("pid")))
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
					s.require(!slices.Contains(secrets, name) && !strings.Contains(line, "conformance-secret"),
						"5.1:credentials", "expected no credential in the environment of a command, got %s", name)
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
				u.s.equal("5.1", j.started.at("pid"), nil, "no pid of a program that is not there")
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
				j.terminate("R86", true)
			}
			for _, j := range jobs[1:] {
				j.exits("R86", fields{"signal": "SIGKILL"})
			}
		}),
		exec.using("command/bad-line", "5.1", "A command that is blank, too long or has control characters is refused, and its id stays free", func(u *user) {
			const blank, control = "command is required and cannot be empty", "Command contains invalid control characters"
			u.allRefused("5.1", denials{
				{blank, contracts.UtilityCommandStart{Command: ""}},
				{blank, contracts.UtilityCommandStart{Command: " \t\n "}},
				{control, contracts.UtilityCommandStart{Command: "echo a\x00b"}},
				{control, contracts.UtilityCommandStart{Command: "echo \x07"}},
				{control, contracts.UtilityCommandStart{Command: "echo \x0b"}},
				{control, contracts.UtilityCommandStart{Command: "echo \x1b[0m"}},
				{control, contracts.UtilityCommandStart{Command: "echo \x7f"}},
				{control, contracts.UtilityCommandStart{Command: "true #" + strings.Repeat("x", 100_000-5)}},
			})
		}),
		exec.using("command/good-line", "5.1", "Tabs, line ends and 100,000 characters are a command", func(u *user) {
			u.sh("5.1", "echo one\techo\necho two\r\n").await("5.1", message("utility_command_exited"))
			u.sh("5.1", "printf '%s'\t'a'\nprintf '%s' 'b'").prints("5.1", "ab")
			u.sh("5.1", "echo long #"+strings.Repeat("x", 100_000-11)).prints("5.1", "long\n")
		}),
		exec.settled("command/bad-cwd", "5.1", "A working directory that is blank, malformed or missing is refused", func(u *user) {
			u.shell("cd " + u.rel + " && echo text > file")
			const missing, malformed = "Working directory not found: ", "Working directory contains invalid characters"
			u.allRefused("5.1", denials{
				{"cwd is required and cannot be empty", contracts.UtilityCommandStart{Command: "true", Cwd: new("")}},
				{"cwd is required and cannot be empty", contracts.UtilityCommandStart{Command: "true", Cwd: new("  ")}},
				{malformed, contracts.UtilityCommandStart{Command: "true", Cwd: new("a\x01b")}},
				{malformed, contracts.UtilityCommandStart{Command: "true", Cwd: new(strings.Repeat("x", 4097))}},
				{missing + u.rel + "/none", contracts.UtilityCommandStart{Command: "true", Cwd: new(u.rel + "/none")}},
				{missing + u.home + "/none", contracts.UtilityCommandStart{Command: "true", Cwd: new(u.home + "/none")}},
			})
			u.allRefused("5.1:file", denials{{missing + u.rel + "/file", contracts.UtilityCommandStart{Command: "true", Cwd: new(u.rel + "/file")}}})
		}),
		exec.settled("command/outside", "5.0 R94", "A working directory outside the workspace is refused, however it is reached", func(u *user) {
			for _, cwd := range u.ways() {
				id := u.id("out")
				u.denied(&contracts.UtilityCommandStart{CommandID: id, Command: "pwd", Cwd: new(cwd)}, outsideRefusal("R94", id))
				u.none("R94", 0, about(id))
			}
		}),
		exec.using("command/bad-environment", "5.1", "Variables without a name, too long or with control characters are refused", func(u *user) {
			named := func(name, value string) contracts.UtilityCommandStart {
				return contracts.UtilityCommandStart{Command: "true", Env: map[string]string{name: value}}
			}
			const before, after = "Environment variable ", " contains invalid characters"
			long := strings.Repeat("K", 257)
			u.allRefused("5.1", denials{
				{"environment variable key is required and cannot be empty", named("", "v")},
				{"environment variable key is required and cannot be empty", named("  ", "v")},
				{before + long + after, named(long, "v")},
				{before + "A\x01B" + after, named("A\x01B", "v")},
				{before + "LONG" + after, named("LONG", strings.Repeat("v", 32_769))},
				{before + "BELL" + after, named("BELL", "\x07")},
				{before + "NUL" + after, named("NUL", "a\x00b")},
			})
			u.start("5.1", &contracts.UtilityCommandStart{Command: `printf '%s' "${#LONG}"`, Env: map[string]string{"LONG": strings.Repeat("v", 32_768)}}).prints("5.1", "32768")
		}),
		exec.using("command/bad-words", "R92 5.1", "A line that cannot be split into words is refused in direct mode", func(u *user) {
			direct := func(line string) contracts.UtilityCommandStart {
				return contracts.UtilityCommandStart{Command: line, ShellMode: contracts.ShellModeDirect}
			}
			const open, dangling = "Command contains unterminated quotes", "Command ends with unfinished escape sequence"
			u.allRefused("R92", denials{
				{dangling, direct(`echo a\`)},
				{dangling, direct(`echo a\\\`)},
				{open, direct(`echo 'a`)},
				{open, direct(`echo "a`)},
				{open, direct(`echo "a\"`)},
				{open, direct(`echo 'a\'b'`)},
			})
		}),
		Needs{Transport: HTTP, Operation: contracts.OperationCommandExec}.using("command/no-id", "5.1", "An empty id is refused", func(u *user) {
			u.caller.post(&contracts.UtilityCommandStart{Command: "true"}).denied(refusal{rule: "5.1:empty-id"})
			u.still("5.1:empty-id", 0, message("utility_command_started"))
		}),
		Needs{}.scenario("command/every-operation-negotiated", "R81", "Input and sizes need the capability of commands too", func(s *Session) {
			p := s.join("alice", &contracts.Hello{Role: contracts.RoleController, Capabilities: &contracts.Capabilities{
				UtilityOperations: []contracts.UtilityOperation{contracts.OperationFileRead}}})
			for _, cmd := range []contracts.Command{&contracts.UtilityCommandStdin{CommandID: "c", Content: "x"}, &contracts.UtilityCommandResize{CommandID: "c", Columns: 80, Rows: 24}} {
				p.refused(p.command(cmd), refusal{rule: "R81", text: cmd.CommandType() + " requires command_exec capability",
					kind: contracts.ErrorTool, code: contracts.CodeUnsupportedCapability})
			}
		}),
		exec.using("command/shell", "5.1", "By default a shell reads the line", func(u *user) {
			u.sh("5.1", `x=7; printf '%s' "$((x*6))" | sed s/4/four-/ && test -n "$HOME$PATH" || echo no`).prints("5.1", "four-2")
			u.start("5.1", &contracts.UtilityCommandStart{Command: `printf '%s' "$0$#"; exit 5`, ShellMode: contracts.ShellModeShell}).
				exits("5.1", fields{"exit_code": 5})
		}),
		exec.using("command/direct-words", "R92", "In direct mode the line is split into words, by quotes and backslashes", func(u *user) {
			for arguments, want := range map[string]string{
				"a  b\tc\nd ":          "[a][b][c][d]",
				`'a b' "c d"`:          "[a b][c d]",
				`a'b c'"d e"f`:         "[ab cd ef]",
				`'' x ""`:              "[][x][]",
				`a\ b "c\"d" \'e\'`:    `[a b][c"d]['e']`,
				`'a\b' "a\b" a\b`:      `[a\b][ab][ab]`,
				`"a\\b" a\\b 'a\\b'`:   `[a\b][a\b][a\\b]`,
				`"it's" 'say "so"'`:    `[it's][say "so"]`,
				"héllo 'wörld\u00a0x'": "[héllo][wörld\u00a0x]",
			} {
				u.words("R92", arguments, want)
			}
			u.start("R92", &contracts.UtilityCommandStart{Command: `'pri'"ntf" x`, ShellMode: contracts.ShellModeDirect}).prints("R92", "x")
		}),
		exec.using("command/direct-literal", "R92", "In direct mode nothing is expanded", func(u *user) {
			u.words("R92", "$HOME ${PATH} * ~ `id` $(id) a|b > x & ; # y", "[$HOME][${PATH}][*][~][`id`][$(id)][a|b][>][x][&][;][#][y]")
			u.start("R92", &contracts.UtilityCommandStart{Command: "env", ShellMode: contracts.ShellModeDirect, Env: map[string]string{"A_VARIABLE": "set"}}).says("R92", "A_VARIABLE=set\n")
		}),
	}
}

// checkDirectories fails unless commands run in the directories that their start names, given
// with where they are in the user's own.
func (u *user) checkDirectories(rule string, directories map[string]string) {
	for given, want := range directories {
		j := u.start(rule, &contracts.UtilityCommandStart{Command: "pwd -P", Cwd: new(given)})
		cwd := j.started.str("cwd")
		u.s.prefer(path.IsAbs(cwd), "2.2:optional", "expected an absolute cwd for %q, got %q", given, cwd)
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

// refusedFree expects a start to be refused with a text, without an event, and
// the id to be free afterwards.
func (u *user) refusedFree(rule, text string, cmd *contracts.UtilityCommandStart) {
	cmd.CommandID = u.id("bad")
	from := len(u.log)
	u.denied(cmd, refusal{rule: rule, text: text, id: cmd.CommandID})
	u.start(rule, &contracts.UtilityCommandStart{CommandID: cmd.CommandID, Command: "echo free"}).prints(rule, "free\n")
	n := 0
	for _, f := range u.log[from:] {
		if f.Type == "utility_command_started" && f.str("command_id") == cmd.CommandID {
			n++
		}
	}
	u.s.require(n == 1,
		rule, "expected no event of a command that was refused, and one start of the next, got %d starts", n)
}

// denials are refusals of starts, by text.
type denials []struct {
	text string
	cmd  contracts.UtilityCommandStart
}

func (u *user) allRefused(rule string, table denials) {
	for _, c := range table {
		u.refusedFree(rule, c.text, &c.cmd)
	}
}

// outsideRefusal is how a path that leaves the workspace is refused.
func outsideRefusal(rule, id string) refusal {
	return refusal{rule: rule, names: "outside workspace root", id: id, code: contracts.CodeWorkspaceViolation}
}

// ways are paths that leave the workspace, by links among others.
func (u *user) ways() []string {
	u.shell("cd " + u.rel + " && ln -s / all && ln -s ../.. up && ln -s all again")
	sibling := u.root + "x"
	return []string{"/", "..", "../..", u.rel + "/../..", u.rel + "/../../" + u.rel, sibling, u.rel + "/all", u.rel + "/up", u.rel + "/again", u.rel + "/all/usr"}
}

// words runs printf on a line's arguments and expects each in brackets.
func (u *user) words(rule, arguments, want string) {
	j := u.start(rule, &contracts.UtilityCommandStart{Command: `printf [%s] ` + arguments, ShellMode: contracts.ShellModeDirect})
	u.s.equal("2.2", j.started.str("shell_mode"), "direct", "shell_mode direct")
	j.prints(rule, want)
}
