package conformance

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// outputs judges what commands write, and what is kept of it: 5.1, R78, R84, R93.
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
				if got := j.output("stderr"); got != text {
					u.s.fail("R84", "expected %s on stderr before the exit, got %s", show(text), show(got))
				}
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
			if got := j.output("stderr"); got != "z€" {
				u.s.fail("R93", "expected %q on stderr, got %q", "z€", got)
			}
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
			if e == nil {
				u.s.fail("A66", "expected the running command in the state, got none called %s", j.id)
			}
			if e["owner_connection_id"] != u.owner() || e["shell_mode"] != "shell" || e["terminal_mode"] != "pipe" {
				u.s.fail("A66", "expected a command of %s by a shell and pipes, got %s", u.owner(), show(e))
			}
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
			j := u.reading("4.2", "echo to-out; read x; echo to-err >&2; exec sleep 60")
			j.says("4.2", "to-out\n")
			j.write("4.2", "\n", false)
			j.says("4.2", "to-err\n")
			f := u.state()
			if list := listOf(f, "state.active_utility_commands"); len(list) != 1 || list[0]["output"] != "to-out\nto-err\n" {
				u.s.fail("4.2", "expected one command with what it wrote to both streams, got %s", show(list))
			}
			j.end()
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
