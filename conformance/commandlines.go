package conformance

import (
	"github.com/seed-028515a8/maestro/contracts"
)

// commandLines judges how a command line becomes a program and its arguments:
// 5.1, R92.
func commandLines() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
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

// words runs printf on a line's arguments and expects each in brackets.
func (u *user) words(rule, arguments, want string) {
	j := u.start(rule, &contracts.UtilityCommandStart{Command: `printf [%s] ` + arguments, ShellMode: contracts.ShellModeDirect})
	if mode := j.started.str("shell_mode"); mode != "direct" {
		u.s.fail("2.2", "expected shell_mode direct, got %q", mode)
	}
	j.prints(rule, want)
}
