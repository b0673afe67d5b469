package conformance

import (
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// commandRefusals judges what is not run at all: the table of 5.1.
func commandRefusals() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
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
	}
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
	if n != 1 {
		u.s.fail(rule, "expected no event of a command that was refused, and one start of the next, got %d starts", n)
	}
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
