package conformance

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// outputs judges what commands write, what is kept of it, and what clients write to
// commands on pipes: 5.1, R78, R84, R88, R89, R93.
func outputs() []Scenario {
	exec := anywhere(contracts.OperationCommandExec)
	return []Scenario{
		exec.using("output/both-streams", "R85", "Each stream is told under its name, in its order", func(u *user) {
			j := u.sh("R85", "for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done")
			j.exits("R85", fields{"success": true, "exit_code": 0})
			for stream, word := range map[string]string{"stdout": "out", "stderr": "err"} {
				var want strings.Builder
				for i := range 9 {
					want.WriteString(word + strconv.Itoa(i+1) + "\n")
				}
				if got := j.output(stream); got != want.String() {
					u.s.fail("R85", "expected %s on %s, got %s", show(want.String()), stream, show(got))
				}
			}
		}),
		exec.using("output/while-running", "5.1", "Output is told while the command runs", func(u *user) {
			j := u.start("5.1", &contracts.UtilityCommandStart{Command: "printf first; read x; printf second", AllowStdin: true})
			j.says("5.1", "first")
			u.do("5.1", &contracts.UtilityCommandStdin{CommandID: j.id, Content: "go on\n"})
			j.prints("5.1", "firstsecond")
		}),
		exec.using("output/before-exit", "R84", "The exit comes after the last output", func(u *user) {
			for i := range 8 {
				text := strings.Repeat(strconv.Itoa(i), 1000) + "last"
				j := u.start("R84", &contracts.UtilityCommandStart{Command: "printf " + text + "; printf " + text + " >&2"})
				j.prints("R84", text)
				u.s.equal("R84", j.output("stderr"), text, "%s on stderr before the exit", show(text))
			}
			u.still("R84", len(u.log), message("utility_command_output"))
		}),
		exec.using("output/large", "5.1", "Two million bytes come complete, in order, in pieces of at most 64 KiB", func(u *user) {
			j := u.sh("5.1", "seq 1 300000")
			j.exits("5.1", fields{"success": true})
			j.whole("5.1", "stdout", counted(300_000))
			for _, f := range u.log[j.from:] {
				if n := len(f.str("content")); n > contracts.MaxTextBytes {
					u.s.advise("5.1:pieces", "expected at most %d bytes in a message, got %d", contracts.MaxTextBytes, n)
				}
			}
		}),
		exec.using("output/large-on-both", "5.1", "A lot on both streams at once blocks nothing", func(u *user) {
			j := u.sh("5.1", "seq 1 40000 >&2 & seq 1 40000; wait")
			j.exits("5.1", fields{"success": true})
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
			u.s.equal("R93", j.output("stderr"), "z€", "%q on stderr", "z€")
			var long strings.Builder
			for range 50_000 {
				long.WriteString("é€🚀")
			}
			j = u.sh("R93", `i=0; while [ $i -lt 50 ]; do s="$s"'é€🚀'; i=$((i+1)); done; i=0; while [ $i -lt 1000 ]; do printf '%s' "$s"; i=$((i+1)); done`)
			j.exits("R93", fields{"success": true})
			j.whole("R93", "stdout", long.String())
		}),
		exec.using("output/invalid-bytes", "5.1", "Bytes that are not UTF-8 are replaced, and nothing else is", func(u *user) {
			u.sh("5.1", `printf 'a\377b\300\257c'`).prints("5.1", "a\ufffdb\ufffd\ufffdc")
			u.sh("5.1", `printf 'end\303'`).prints("5.1", "end\ufffd")
			u.sh("5.1", `printf 'nul\000tab\tbell\007esc\033.'`).prints("5.1", "nul\x00tab\tbell\aesc\x1b.")
		}),
		exec.using("output/in-state", "R78 A66", "A state has the newest 32,768 characters of what a command wrote", func(u *user) {
			unit := strings.Repeat("é", 9) + "\n" // whose bytes are more than its characters
			j := u.sh("R78", `i=0; while [ $i -lt 4000 ]; do printf 'ééééééééé\n'; i=$((i+1)); done; echo the end; exec sleep 60`)
			j.says("R78", "the end\n")
			e := active(u.state(), j.id)
			u.s.require(e != nil, "A66", "expected the running command in the state, got none called %s", j.id)
			u.s.require(e["owner_connection_id"] == u.owner() && e["shell_mode"] == "shell" && e["terminal_mode"] == "pipe",
				"A66", "expected a command of %s by a shell and pipes, got %s", u.owner(), show(e))
			all := []rune(strings.Repeat(unit, 4000) + "the end\n")
			got := textOf(e, "output")
			if strings.ContainsRune(got, utf8.RuneError) {
				u.s.fail("R93", "expected whole characters in the state, got some that were cut: %s", show(got[:min(len(got), 80)]))
			}
			if n := utf8.RuneCountInString(got); n > 32_768 || !strings.HasSuffix(string(all), got) {
				u.s.fail("R78", "expected the newest of what was written, 32768 characters at most, got %d that end in %s", n, show(got[max(0, len(got)-40):]))
			} else if n < 32_768 {
				u.s.fail("R78:characters", "expected the last 32768 characters, got %d that end in %s", n, show(got[max(0, len(got)-40):]))
			}
			j.end()
		}),
		exec.using("output/both-in-state", "4.2", "A state has both streams of a command, and no command that ended", func(u *user) {
			u.sh("4.2", "echo gone").prints("4.2", "gone\n")
			j := u.reading("4.2", "echo to-out; read x; echo to-err >&2; exec sleep 60").says("4.2", "to-out\n")
			j.write("4.2", "\n", false)
			j.says("4.2", "to-err\n")
			f := u.state()
			if list := listOf(f, "state.active_utility_commands"); len(list) != 1 || list[0]["output"] != "to-out\nto-err\n" {
				u.s.fail("4.2", "expected one command with what it wrote to both streams, got %s", show(list))
			}
			j.end()
		}),
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
		exec.using("stdin/not-enabled", "R88", "Without allow_stdin there is an end of input and nothing to write to", noStdin),
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

// write writes to a command.
func (j *job) write(rule, content string, eof bool) {
	j.u.do(rule, &contracts.UtilityCommandStdin{CommandID: j.id, Content: content, EOF: eof})
}

// reading starts a command that may read.
func (u *user) reading(rule, command string) *job {
	return u.start(rule, &contracts.UtilityCommandStart{Command: command, AllowStdin: true})
}

// noStdin is about a command without allow_stdin.
func noStdin(u *user) {
	u.sh("R88", "cat; echo eof").prints("R88", "eof\n")
	j := u.sh("R88", "exec sleep 60")
	for _, cmd := range []*contracts.UtilityCommandStdin{{CommandID: j.id, Content: "x"}, {CommandID: j.id, EOF: true}} {
		u.denied(cmd, refusal{rule: "R88", text: "Utility command stdin is not enabled: " + j.id, id: j.id})
	}
	j.end()
}
