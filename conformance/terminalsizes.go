package conformance

import (
	"fmt"

	"github.com/seed-028515a8/maestro/contracts"
)

// terminalSizes judges how large terminals are: 5.1, R90, R91.
func terminalSizes() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
		exec.using("terminal/size", "R91", "A terminal has the size asked for, or 80 by 24", func(u *user) {
			for _, c := range []struct {
				columns, rows *int64
				want          string
			}{{nil, nil, "24 80"}, {new(int64(132)), new(int64(43)), "43 132"}, {new(int64(200)), nil, "24 200"}, {nil, new(int64(50)), "50 80"}} {
				j := u.start("R91", &contracts.UtilityCommandStart{Command: "stty size", TerminalMode: contracts.TerminalPTY, Columns: c.columns, Rows: c.rows})
				if got := show(j.started.at("rows")) + " " + show(j.started.at("columns")); got != c.want {
					u.s.fail("R91", "expected a start with rows and columns %s, got %s", c.want, got)
				}
				j.shows("R91", c.want+"\n")
			}
		}),
		exec.using("terminal/bad-size", "5.1", "A size that is none is refused, and the id stays free", func(u *user) {
			sized := func(columns, rows int64) contracts.UtilityCommandStart {
				return contracts.UtilityCommandStart{Command: "true", TerminalMode: contracts.TerminalPTY, Columns: &columns, Rows: &rows}
			}
			const columns, rows = "Utility command columns must be a positive integer", "Utility command rows must be a positive integer"
			u.allRefused("5.1", denials{{columns, sized(0, 24)}, {columns, sized(-5, 24)}, {rows, sized(80, 0)}, {rows, sized(80, -1)}})
			large := sized(65_536, 24)
			large.CommandID = "large"
			u.denied(&large, refusal{rule: "5.1:size", id: "large"})
			u.none("5.1:size", 0, about("large"))
		}),
		exec.using("terminal/resize", "R91", "A resize is confirmed, and the program learns it", func(u *user) {
			j := u.terminal("R91", "stty -echo; trap 'echo told; stty size' WINCH; echo ready; "+lasting)
			j.says("R91", "ready")
			j.resizes(100, 50)
			j.says("R91", "told\r\n50 100\r\n")
			j.end()
			k := u.terminal("R91", "stty -echo; echo ready; while read x; do stty size; done")
			k.says("R91", "ready")
			for _, size := range [][2]int64{{90, 40}, {65_535, 1}, {1, 65_535}, {80, 24}} {
				k.resizes(size[0], size[1])
				k.write("R91", "size?\n", false)
				k.says("R91", fmt.Sprintf("\n%d %d\r\n", size[1], size[0]))
			}
			from := len(u.log)
			u.denied(&contracts.UtilityCommandResize{CommandID: k.id, Columns: 0, Rows: 10}, refusal{rule: "5.1", id: k.id})
			u.none("R91", from, message("utility_command_resized"))
			k.end()
		}),
		exec.using("terminal/resize-in-state", "4.2", "A state has the size of a terminal after a resize", func(u *user) {
			j := u.terminal("4.2", "exec sleep 60")
			u.do("4.2", &contracts.UtilityCommandResize{CommandID: j.id, Columns: 90, Rows: 30})
			j.await("4.2", message("utility_command_resized"))
			if e := active(u.state(), j.id); e == nil || !same(e["columns"], 90) || !same(e["rows"], 30) || e["terminal_mode"] != "pty" {
				u.s.fail("4.2", "expected a terminal of 90 by 30 in the state, got %s", show(e))
			}
			j.end()
		}),
		exec.using("terminal/pipe-has-no-size", "R90", "A pipe has no size, at the start or later", func(u *user) {
			const text = "Utility command columns and rows require terminal_mode=pty"
			u.allRefused("R90", denials{
				{text, contracts.UtilityCommandStart{Command: "true", Columns: new(int64(80))}},
				{text, contracts.UtilityCommandStart{Command: "true", Rows: new(int64(24)), TerminalMode: contracts.TerminalPipe}},
			})
			j := u.sh("R90", "exec sleep 60")
			u.denied(&contracts.UtilityCommandResize{CommandID: j.id, Columns: 80, Rows: 24},
				refusal{rule: "R90", text: "Utility command resize is only supported for PTY commands: " + j.id, id: j.id})
			u.none("R90", 0, message("utility_command_resized"))
			j.end()
		}),
	}
}

// resizes sets the size of a terminal and waits until that is confirmed.
func (j *job) resizes(columns, rows int64) {
	j.u.do("R91", &contracts.UtilityCommandResize{CommandID: j.id, Columns: columns, Rows: rows})
	j.await("R91", message("utility_command_resized").with("columns", int(columns)).with("rows", int(rows)))
}
