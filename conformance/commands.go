package conformance

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

func anywhere(op contracts.UtilityOperation) Needs { return Needs{Transport: Anywhere, Operation: op} }

// commands judges which commands run, where, and as what program, what they write, and
// what clients write to them: 2.2, 5.0, 5.1, R78, R84, R88, R89, R92 to R94.
func commands() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
		exec.settled("command/started", "R84 2.2", "A start tells what runs, where, how, and whose it is", func(u *user) {
			j := u.start("R84", &contracts.UtilityCommandStart{CommandID: "told", Command: "true", Cwd: new(u.home)})
			u.s.shows("2.2", j.started, fields{"command_id": "told", "command": "true", "shell_mode": "shell", "terminal_mode": "pipe", "columns": nil, "rows": nil})
			j.exits("R85", fields{"success": true, "exit_code": 0, "signal": nil, "reason": nil})
			u.s.shows("2.2:optional", j.started, fields{"cwd": u.home, "owner_connection_id": u.owner()})
			u.s.failIf(number(j.started.at("pid")) <= 1,
				"2.2:optional", "expected the pid of a process, got %s", show(j.started.at("pid")))
			k := u.sh("R84", "echo $$")
			k.prints("2.2:optional", show(k.started.at("pid"))+"\n")
		}),
		exec.settled("command/cwd", "5.0 R94", "A command runs where it is told, by a relative or an absolute path or a link", func(u *user) {
			u.in("mkdir -p sub/deep ..cache && ln -s sub link")
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
					s.failIf(slices.Contains(secrets, name) || strings.Contains(line, "conformance-secret"),
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
				f := u.sh("5.1", "kill -"+name+" $$; sleep 600").
					exits("5.1", fields{"success": false, "exit_code": nil, "signal": "SIG" + name, "reason": nil}).exited
				_, present := f.Fields["exit_code"]
				u.s.adviseIf(!present, "0.2:both", "expected exit_code null beside the signal, got %s", abridge(f.Raw, maxTraceText))
			}
		}),
		exec.using("command/no-program", "5.1", "A program that is not there starts without a pid and exits with the reason", func(u *user) {
			for _, program := range []string{"conformance-no-such-program", "/conformance/no/such/program"} {
				j := u.start("5.1", &contracts.UtilityCommandStart{CommandID: "none", Command: program + " with arguments", ShellMode: contracts.ShellModeDirect})
				u.s.equal("5.1", "the pid of a program that is not there", j.started.at("pid"), nil)
				f := j.exits("5.1", fields{"success": false, "signal": nil}).exited
				u.s.failIf(f.str("reason") == "", "5.1", "expected the reason why nothing runs, got %s", abridge(f.Raw, maxTraceText))
			}
			u.sh("5.1", "conformance-no-such-program 2>/dev/null").exits("5.1", fields{"success": false, "exit_code": 127})
		}),
		exec.using("command/side-by-side", "1.7 R84", "Commands run side by side and end when they end", func(u *user) {
			slow := u.reading("1.7", "read x; echo slow")
			u.sh("1.7", "echo quick").prints("1.7", "quick\n")
			u.none("1.7", slow.from, message("utility_command_exited").with("command_id", slow.id))
			slow.write("1.7", "\n", false)
			slow.prints("1.7", "slow\n")
		}),
		exec.using("command/many", "5.1", "More commands at once than 32 are refused, and the id stays free", func(u *user) {
			var jobs []*job
			for range 32 {
				jobs = append(jobs, u.sh("5.1:limit", "exec sleep 600"))
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
			line := func(text string) contracts.UtilityCommandStart { return contracts.UtilityCommandStart{Command: text} }
			u.refusedFree("5.1", "command is required and cannot be empty", line(""), line(" \t\n "))
			u.refusedFree("5.1", "Command contains invalid control characters", line("echo a\x00b"), line("echo \x07"), line("echo \x0b"),
				line("echo \x1b[0m"), line("echo \x7f"), line("true #"+strings.Repeat("x", 100_000-5)))
		}),
		exec.using("command/good-line", "5.1", "Tabs, line ends and 100,000 characters are a command", func(u *user) {
			u.sh("5.1", "echo one\techo\necho two\r\n").await("5.1", message("utility_command_exited"))
			u.sh("5.1", "printf '%s'\t'a'\nprintf '%s' 'b'").prints("5.1", "ab")
			u.sh("5.1", "echo long #"+strings.Repeat("x", 100_000-11)).prints("5.1", "long\n")
		}),
		exec.settled("command/bad-cwd", "5.1", "A working directory that is blank, malformed or missing is refused", func(u *user) {
			u.in("echo text > file")
			in := func(cwd string) contracts.UtilityCommandStart {
				return contracts.UtilityCommandStart{Command: "true", Cwd: &cwd}
			}
			u.refusedFree("5.1", "cwd is required and cannot be empty", in(""), in("  "))
			u.refusedFree("5.1", "Working directory contains invalid characters", in("a\x01b"), in(strings.Repeat("x", 4097)))
			const missing = "Working directory not found: "
			for _, cwd := range []string{u.rel + "/none", u.home + "/none"} {
				u.refusedFree("5.1", missing+cwd, in(cwd))
			}
			u.refusedFree("5.1:file", missing+u.rel+"/file", in(u.rel+"/file"))
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
			u.refusedFree("5.1", "environment variable key is required and cannot be empty", named("", "v"), named("  ", "v"))
			for name, value := range map[string]string{strings.Repeat("K", 257): "v", "A\x01B": "v",
				"LONG": strings.Repeat("v", 32_769), "BELL": "\x07", "NUL": "a\x00b"} {
				u.refusedFree("5.1", "Environment variable "+name+" contains invalid characters", named(name, value))
			}
			u.start("5.1", &contracts.UtilityCommandStart{Command: `printf '%s' "${#LONG}"`, Env: map[string]string{"LONG": strings.Repeat("v", 32_768)}}).prints("5.1", "32768")
		}),
		exec.using("command/bad-words", "R92 5.1", "A line that cannot be split into words is refused in direct mode", func(u *user) {
			direct := func(line string) contracts.UtilityCommandStart {
				return contracts.UtilityCommandStart{Command: line, ShellMode: contracts.ShellModeDirect}
			}
			u.refusedFree("R92", "Command ends with unfinished escape sequence", direct(`echo a\`), direct(`echo a\\\`))
			u.refusedFree("R92", "Command contains unterminated quotes",
				direct(`echo 'a`), direct(`echo "a`), direct(`echo "a\"`), direct(`echo 'a\'b'`))
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
		exec.using("output/both-streams", "R85", "Each stream is told under its name, in its order", func(u *user) {
			j := u.sh("R85", "for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done")
			j.exits("R85", fields{"success": true, "exit_code": 0})
			for stream, word := range map[string]string{"stdout": "out", "stderr": "err"} {
				want := word + strings.ReplaceAll(strings.TrimSpace(counted(9)), "\n", "\n"+word) + "\n"
				u.s.equal("R85", stream, j.output(stream), want)
			}
		}),
		exec.using("output/while-running", "5.1", "Output is told while the command runs", func(u *user) {
			j := u.reading("5.1", "printf first; read x; printf second").says("5.1", "first")
			j.write("5.1", "go on\n", false)
			j.prints("5.1", "firstsecond")
		}),
		exec.using("output/before-exit", "R84", "The exit comes after the last output", func(u *user) {
			for i := range 8 {
				text := strings.Repeat(strconv.Itoa(i), 1000) + "last"
				j := u.start("R84", &contracts.UtilityCommandStart{Command: "printf " + text + "; printf " + text + " >&2"})
				j.prints("R84", text)
				u.s.equal("R84", "stderr before the exit", j.output("stderr"), text)
			}
			u.still("R84", len(u.log), message("utility_command_output"))
		}),
		exec.using("output/large", "5.1", "Two million bytes come complete, in order, in pieces of at most 64 KiB", func(u *user) {
			j := u.sh("5.1", "seq 1 300000").exits("5.1", fields{"success": true})
			j.whole("5.1", "stdout", counted(300_000))
			for _, f := range u.log[j.from:] {
				n := len(f.str("content"))
				u.s.adviseIf(n > contracts.MaxTextBytes, "5.1:pieces", "expected at most %d bytes in a message, got %d", contracts.MaxTextBytes, n)
			}
		}),
		exec.using("output/large-on-both", "5.1", "A lot on both streams at once blocks nothing", func(u *user) {
			j := u.sh("5.1", "seq 1 40000 >&2 & seq 1 40000; wait").exits("5.1", fields{"success": true})
			j.whole("5.1", "stdout", counted(40_000))
			j.whole("5.1", "stderr", counted(40_000))
		}),
		exec.using("output/many-at-once", "R84 5.1", "Of many commands at once each has its output, in its order", func(u *user) {
			var jobs []*job
			for i := range 16 {
				jobs = append(jobs, u.sh("R84", "seq 1 "+strconv.Itoa(3000+100*i)+"; exit "+strconv.Itoa(i)))
			}
			for i, j := range jobs {
				j.exits("R84", fields{"exit_code": i})
				j.whole("5.1", "stdout", counted(3000+100*i))
			}
		}),
		exec.using("output/cut-characters", "R93", "A character that is written in pieces comes whole", func(u *user) {
			j := u.sh("R93", `printf 'a\303'; sleep 0.2; printf '\251b\360\237'; sleep 0.2; printf '\232'; sleep 0.2; printf '\200.'; printf 'z\342\202' >&2; sleep 0.2; printf '\254' >&2`)
			j.prints("R93", "aéb🚀.")
			u.s.equal("R93", "stderr", j.output("stderr"), "z€")
			j = u.sh("R93", `i=0; while [ $i -lt 50 ]; do s="$s"'é€🚀'; i=$((i+1)); done; i=0; while [ $i -lt 1000 ]; do printf '%s' "$s"; i=$((i+1)); done`)
			j.exits("R93", fields{"success": true})
			j.whole("R93", "stdout", strings.Repeat("é€🚀", 50_000))
		}),
		exec.using("output/invalid-bytes", "5.1", "Bytes that are not UTF-8 are replaced, and nothing else is", func(u *user) {
			u.sh("5.1", `printf 'a\377b\300\257c'`).prints("5.1", "a\ufffdb\ufffd\ufffdc")
			u.sh("5.1", `printf 'end\303'`).prints("5.1", "end\ufffd")
			u.sh("5.1", `printf 'nul\000tab\tbell\007esc\033.'`).prints("5.1", "nul\x00tab\tbell\aesc\x1b.")
		}),
		exec.using("output/in-state", "R78 A66", "A state has the newest 32,768 characters of what a command wrote", func(u *user) {
			unit := strings.Repeat("é", 9) + "\n" // whose bytes are more than its characters
			j := u.sh("R78", `i=0; while [ $i -lt 4000 ]; do printf 'ééééééééé\n'; i=$((i+1)); done; echo the end; exec sleep 600`)
			j.says("R78", "the end\n")
			e := active(u.state(), j.id)
			u.s.failIf(e == nil, "A66", "expected the running command in the state, got none called %s", j.id)
			u.s.failIf(e["owner_connection_id"] != u.owner() || e["shell_mode"] != "shell" || e["terminal_mode"] != "pipe",
				"A66", "expected a command of %s by a shell and pipes, got %s", u.owner(), show(e))
			all := strings.Repeat(unit, 4000) + "the end\n"
			got := textOf(e, "output")
			n, end := utf8.RuneCountInString(got), show(got[max(0, len(got)-40):])
			u.s.failIf(strings.ContainsRune(got, utf8.RuneError),
				"R93", "expected whole characters in the state, got some that were cut: %s", show(got[:min(len(got), 80)]))
			u.s.failIf(n > 32_768 || !strings.HasSuffix(all, got),
				"R78", "expected the newest of what was written, 32768 characters at most, got %d that end in %s", n, end)
			u.s.failIf(n != 32_768, "R78:characters", "expected the last 32768 characters, got %d that end in %s", n, end)
			j.end()
		}),
		exec.using("output/both-in-state", "4.2", "A state has both streams of a command, and no command that ended", func(u *user) {
			u.sh("4.2", "echo gone").prints("4.2", "gone\n")
			j := u.reading("4.2", "echo to-out; read x; echo to-err >&2; exec sleep 600").says("4.2", "to-out\n")
			j.write("4.2", "\n", false)
			j.says("4.2", "to-err\n")
			list := listOf(u.state(), "state.active_utility_commands")
			u.s.failIf(len(list) != 1 || list[0]["output"] != "to-out\nto-err\n",
				"4.2", "expected one command with what it wrote to both streams, got %s", show(list))
			j.end()
		}),
		exec.using("stdin/pipe", "R89", "What a client writes is read, until it says that this was all", func(u *user) {
			j := u.reading("R89", "cat; echo the end")
			j.write("R89", "héllo\n", false)
			j.says("R89", "héllo\n")
			j.write("R89", "", false)
			j.write("R89", "a\x00b", false)
			j.write("R89", "last", true)
			j.exits("R89", fields{"success": true}).prints("R89", "héllo\na\x00blastthe end\n")
			only := u.reading("R89", "wc -c | tr -d ' '")
			only.write("R89", "", true)
			only.prints("R89", "0\n")
		}),
		exec.using("stdin/not-enabled", "R88", "Without allow_stdin there is an end of input and nothing to write to", noStdin),
		exec.using("stdin/after-end", "5.1", "Nothing can be written after the end, but ending again is fine", func(u *user) {
			j := u.reading("5.1", "cat; echo eof; exec sleep 600")
			j.write("5.1", "x", true)
			j.says("5.1", "xeof\n")
			text := "Utility command stdin is not writable: " + j.id
			u.denied(&contracts.UtilityCommandStdin{CommandID: j.id, Content: "y"}, refusal{rule: "5.1", text: text, id: j.id})
			u.denied(&contracts.UtilityCommandStdin{CommandID: j.id, Content: "y", EOF: true}, refusal{rule: "5.1", text: text, id: j.id})
			from := len(u.log)
			j.write("5.1", "", true)
			u.still("5.1", from, toolError)
			j.end()
		}),
		exec.using("stdin/unknown", "5.1", "Input for an unknown or ended command is refused", func(u *user) {
			ended := u.reading("5.1", "true").exits("5.1", fields{"success": true})
			for _, id := range []string{"ghost", ended.id} {
				for _, cmd := range []contracts.Command{&contracts.UtilityCommandStdin{CommandID: id, Content: "x"}, &contracts.UtilityCommandResize{CommandID: id, Columns: 80, Rows: 24}} {
					u.denied(cmd, refusal{rule: "5.1", text: "Utility command not found: " + id, id: id})
				}
			}
		}),
		exec.using("stdin/in-order", "1.7", "What is sent about a command at once is done in its order", func(u *user) {
			from := len(u.log)
			u.try(&contracts.UtilityCommandStart{CommandID: "hasty", Command: "cat; exit 4", AllowStdin: true})
			for _, word := range []string{"a", "b", "c", "d"} {
				u.try(&contracts.UtilityCommandStdin{CommandID: "hasty", Content: word})
			}
			u.try(&contracts.UtilityCommandStdin{CommandID: "hasty", Content: "e", EOF: true})
			j := &job{u: u, id: "hasty", from: from}
			j.exits("1.7:order", fields{"exit_code": 4}).prints("1.7:order", "abcde")
			u.try(&contracts.UtilityCommandStart{CommandID: "brief", Command: "exec sleep 600", TerminalMode: contracts.TerminalPTY})
			u.try(&contracts.UtilityCommandResize{CommandID: "brief", Columns: 70, Rows: 20})
			u.try(&contracts.UtilityCommandTerminate{CommandID: "brief", Force: true})
			k := &job{u: u, id: "brief", from: from}
			k.await("1.7:order", message("utility_command_resized").with("columns", 70))
			k.exits("1.7:order", fields{"signal": "SIGKILL"})
			u.none("1.7:order", from, toolError)
		}),
		exec.using("stdin/large", "R89", "Much input arrives whole, whenever the command reads", func(u *user) {
			j := u.reading("R89", "sleep 0.3; cat")
			for part := range slices.Chunk([]byte(counted(60_000)), 100_000) {
				j.write("R89", string(part), false)
			}
			j.write("R89", strings.Repeat("z", 10), true)
			j.exits("R89", fields{"success": true})
			j.whole("R89", "stdout", counted(60_000)+strings.Repeat("z", 10))
		}),
	}
}

// checkDirectories fails unless commands run in the directories that their start names, given
// with where they are in the user's own.
func (u *user) checkDirectories(rule string, directories map[string]string) {
	for given, want := range directories {
		j := u.start(rule, &contracts.UtilityCommandStart{Command: "pwd -P", Cwd: new(given)})
		cwd := j.started.str("cwd")
		u.s.adviseIf(!path.IsAbs(cwd), "2.2:optional", "expected an absolute cwd for %q, got %q", given, cwd)
		j.prints(rule, path.Join(u.home, want)+"\n")
	}
}

// refusedFree expects starts to be refused with a text, without an event, and
// their ids to be free afterwards.
func (u *user) refusedFree(rule, text string, starts ...contracts.UtilityCommandStart) {
	for _, cmd := range starts {
		cmd.CommandID = u.id("bad")
		from := len(u.log)
		u.denied(&cmd, refusal{rule: rule, text: text, id: cmd.CommandID})
		u.start(rule, &contracts.UtilityCommandStart{CommandID: cmd.CommandID, Command: "echo free"}).prints(rule, "free\n")
		n := countOf(u.log[from:], message("utility_command_started").with("command_id", cmd.CommandID))
		u.s.failIf(n != 1, rule, "expected no event of a command that was refused, and one start of the next, got %d starts", n)
	}
}

func outsideRefusal(rule, id string) refusal {
	return refusal{rule: rule, names: "outside workspace root", id: id, code: contracts.CodeWorkspaceViolation}
}

// ways are paths that leave the workspace, by links among others.
func (u *user) ways() []string {
	u.in("ln -s / all && ln -s ../.. up && ln -s all again")
	sibling := u.root + "x"
	return []string{"/", "..", "../..", u.rel + "/../..", u.rel + "/../../" + u.rel, sibling, u.rel + "/all", u.rel + "/up", u.rel + "/again", u.rel + "/all/usr"}
}

func (u *user) words(rule, arguments, want string) {
	j := u.start(rule, &contracts.UtilityCommandStart{Command: `printf [%s] ` + arguments, ShellMode: contracts.ShellModeDirect})
	u.s.equal("2.2", "shell_mode", j.started.str("shell_mode"), "direct")
	j.prints(rule, want)
}

// counted is what seq prints.
func counted(last int) string {
	var text []byte
	for i := range last {
		text = append(strconv.AppendInt(text, int64(i+1), 10), '\n')
	}
	return string(text)
}

// whole fails unless a command wrote exactly a long text to a stream.
func (j *job) whole(rule, stream, want string) {
	got := j.output(stream)
	if got == want {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	j.u.s.fail(rule, "expected %d bytes on %s, got %d, other than expected from byte %d on: %s", len(want), stream, len(got), at, show(got[at:min(len(got), at+40)]))
}

func (j *job) write(rule, content string, eof bool) {
	j.u.do(rule, &contracts.UtilityCommandStdin{CommandID: j.id, Content: content, EOF: eof})
}

// reading starts a command that may read.
func (u *user) reading(rule, command string) *job {
	return u.start(rule, &contracts.UtilityCommandStart{Command: command, AllowStdin: true})
}

func noStdin(u *user) {
	u.sh("R88", "cat; echo eof").prints("R88", "eof\n")
	j := u.sh("R88", "exec sleep 600")
	for _, cmd := range []*contracts.UtilityCommandStdin{{CommandID: j.id, Content: "x"}, {CommandID: j.id, EOF: true}} {
		u.denied(cmd, refusal{rule: "R88", text: "Utility command stdin is not enabled: " + j.id, id: j.id})
	}
	j.end()
}
