package main

import (
	"os/exec"
	"slices"
	"strings"
)

func utilities(s *stage) {
	alice, _ := s.subscribe("controller", false)
	t := s.open(nil)
	s.runCommand(alice, t)
	s.search(alice, t)
	s.watch(alice, t)
}

// runCommand starts a program whose name is in quotes. It takes a moment, so
// that it is there to be listed.
func (s *stage) runCommand(m member, t *stream) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		s.fail("find a shell: %w", err)
	}
	shown := s.send(m, object{"type": "utility_command_start", "command_id": "cmd_1", "shell_mode": "direct", "terminal_mode": "pipe",
		"command": `"` + sh + `" -c 'sleep 0.2; printf "conformance output"'`})
	s.want(slices.ContainsFunc(shown.items("state", "active_utility_commands"), func(o object) bool {
		return o.str("command_id") == "cmd_1" && o.str("owner_connection_id") == m.connection
	}), "the answer's state does not list the command as that of %s", m.connection)
	t.message("utility_command_started", object{"command_id": "cmd_1", "shell_mode": "direct"})
	t.message("utility_command_output", object{"command_id": "cmd_1", "stream": "stdout", "content": "conformance output"})
	ended, _ := t.message("utility_command_exited", object{"command_id": "cmd_1", "success": true})
	s.want(ended.number("exit_code") == 0, "got exit code %v, want 0", ended.at("exit_code"))
}

func (s *stage) search(m member, t *stream) {
	s.send(m, object{"type": "utility_file_search", "search_id": "search_1", "query": "notes"})
	found, _ := t.message("utility_file_search_results", object{"search_id": "search_1", "query": "notes"})
	s.want(slices.ContainsFunc(found.items("results"), func(o object) bool { return strings.HasSuffix(o.str("path"), "notes.md") }),
		"got results %v, want notes.md among them", found.at("results"))
}

func (s *stage) watch(m member, t *stream) {
	shown := s.send(m, object{"type": "utility_file_watch_start", "watch_id": "watch_1", "include_patterns": []string{"**/*.md"}, "debounce_ms": 50})
	s.want(slices.ContainsFunc(shown.items("state", "active_file_watches"), func(o object) bool {
		return o.str("watch_id") == "watch_1" && o.str("owner_connection_id") == m.connection
	}), "the answer's state does not list the watch as that of %s", m.connection)
	t.message("utility_file_watch_started", object{"watch_id": "watch_1"})
	shown = s.send(m, object{"type": "utility_file_watch_stop", "watch_id": "watch_1"})
	s.want(len(shown.items("state", "active_file_watches")) == 0, "after the stop, the answer's state lists watches: %v", shown.at("state", "active_file_watches"))
	t.message("utility_file_watch_stopped", object{"watch_id": "watch_1", "reason": "Stopped by controller"})
}
