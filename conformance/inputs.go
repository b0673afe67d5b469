package conformance

import (
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// inputs judges what clients write to commands on pipes: 5.1, R88, R89.
func inputs() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
		exec.using("stdin/pipe", "R89", "What a client writes is read, until it says that this was all", func(u *user) {
			j := u.reading("R89", "cat; echo the end")
			j.write("R89", "héllo\n", false)
			j.says("R89", "héllo\n")
			j.write("R89", "", false)
			j.write("R89", "a\x00b", false)
			j.write("R89", "last", true)
			j.exits("R89", fields{"success": true})
			j.prints("R89", "héllo\na\x00blastthe end\n")
			only := u.reading("R89", "wc -c | tr -d ' '")
			only.write("R89", "", true)
			only.prints("R89", "0\n")
		}),
		exec.using("stdin/not-enabled", "R88", "Without allow_stdin there is an end of input and nothing to write to", func(u *user) {
			u.sh("R88", "cat; echo eof").prints("R88", "eof\n")
			j := u.sh("R88", "exec sleep 60")
			for _, cmd := range []*contracts.UtilityCommandStdin{{CommandID: j.id, Content: "x"}, {CommandID: j.id, EOF: true}} {
				u.denied(cmd, refusal{rule: "R88", text: "Utility command stdin is not enabled: " + j.id, id: j.id})
			}
			j.end()
		}),
		exec.using("stdin/after-end", "5.1", "Nothing can be written after the end, but ending again is fine", func(u *user) {
			j := u.reading("5.1", "cat; echo eof; exec sleep 60")
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
			ended := u.reading("5.1", "true")
			ended.exits("5.1", fields{"success": true})
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
			j.exits("1.7:order", fields{"exit_code": 4})
			j.prints("1.7:order", "abcde")
			u.try(&contracts.UtilityCommandStart{CommandID: "brief", Command: "exec sleep 60", TerminalMode: contracts.TerminalPTY})
			u.try(&contracts.UtilityCommandResize{CommandID: "brief", Columns: 70, Rows: 20})
			u.try(&contracts.UtilityCommandTerminate{CommandID: "brief", Force: true})
			k := &job{u: u, id: "brief", from: from}
			k.await("1.7:order", message("utility_command_resized").with("columns", 70))
			k.exits("1.7:order", fields{"signal": "SIGKILL"})
			u.none("1.7:order", from, toolError)
		}),
		exec.using("stdin/large", "R89", "Much input arrives whole, whenever the command reads", func(u *user) {
			j := u.reading("R89", "sleep 0.3; cat")
			text := counted(60_000)
			for len(text) > 0 {
				n := min(len(text), 100_000)
				j.write("R89", text[:n], false)
				text = text[n:]
			}
			j.write("R89", strings.Repeat("z", 10), true)
			j.exits("R89", fields{"success": true})
			j.whole("R89", "stdout", counted(60_000)+strings.Repeat("z", 10))
		}),
	}
}

// write writes to a command.
func (j *job) write(rule, content string, eof bool) {
	j.u.do(rule, &contracts.UtilityCommandStdin{CommandID: j.id, Content: content, EOF: eof})
}

// reading starts a command that may read.
func (u *user) reading(rule, command string) *job {
	return u.start(rule, &contracts.UtilityCommandStart{Command: command, AllowStdin: true})
}
