package double

import (
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// check refuses what cannot be run (5.1), and else returns what to run where.
func (r *room) check(cmd *contracts.UtilityCommandStart) (args []string, dir string, e *contracts.Error) {
	for _, ask := range []func(*contracts.UtilityCommandStart) string{lineFault, environmentFault} {
		if text := ask(cmd); text != "" {
			return nil, "", noTool(contracts.CodeBadRequest, text)
		}
	}
	if cmd.TerminalMode == contracts.TerminalPTY {
		e = checkSize(cmd.Columns, cmd.Rows)
	} else if cmd.Columns != nil || cmd.Rows != nil {
		e = noTool(contracts.CodeBadRequest, "Utility command columns and rows require terminal_mode=pty")
	}
	if e != nil {
		return nil, "", e
	}
	args = []string{shell(), "-c", cmd.Command}
	if shellOf(cmd) == contracts.ShellModeDirect {
		var fault string
		if args, fault = words(cmd.Command); fault != "" {
			return nil, "", noTool(contracts.CodeBadRequest, fault)
		}
	}
	p := r.directory(cmd.Cwd)
	if !p.inside {
		return nil, "", p.outside()
	}
	if info, err := os.Stat(p.real); err != nil || !info.IsDir() {
		return nil, "", noTool(contracts.CodeNotFound, "Working directory not found: "+*cmd.Cwd)
	}
	return args, p.real, nil
}

// shell is what reads command lines.
func shell() string {
	if _, err := os.Stat("/bin/bash"); err == nil {
		return "/bin/bash"
	}
	return "sh"
}

// wellFormed reports whether a text has no control characters but tabs and line
// ends, and at most so many characters.
func wellFormed(text string, most int) bool {
	return utf8.RuneCountInString(text) <= most && !strings.ContainsFunc(text, func(c rune) bool {
		return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f
	})
}

func lineFault(cmd *contracts.UtilityCommandStart) string {
	switch {
	case strings.TrimSpace(cmd.Command) == "":
		return "command is required and cannot be empty"
	case !wellFormed(cmd.Command, 100_000):
		return "Command contains invalid control characters"
	case cmd.Cwd != nil && strings.TrimSpace(*cmd.Cwd) == "":
		return "cwd is required and cannot be empty"
	case cmd.Cwd != nil && !wellFormed(*cmd.Cwd, 4_096):
		return "Working directory contains invalid characters"
	}
	return ""
}

func environmentFault(cmd *contracts.UtilityCommandStart) string {
	for key, value := range cmd.Env {
		switch {
		case strings.TrimSpace(key) == "":
			return "environment variable key is required and cannot be empty"
		case !wellFormed(key, 256), !wellFormed(value, 32_768):
			return "Environment variable " + key + " contains invalid characters"
		}
	}
	return ""
}

// checkSize refuses what is no size of a terminal.
func checkSize(columns, rows *int64) *contracts.Error {
	for _, side := range []struct {
		name string
		n    *int64
	}{{"columns", columns}, {"rows", rows}} {
		if side.n != nil && (*side.n < 1 || *side.n > 65_535) {
			return noTool(contracts.CodeBadRequest, "Utility command "+side.name+" must be a positive integer")
		}
	}
	return nil
}

// environment is what a command is started with: ours without credentials.
func (s *Server) environment(cmd *contracts.UtilityCommandStart) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		secret := slices.ContainsFunc([]string{"_API_KEY", "_TOKEN", "_SECRET", "_ACCESS_KEY", "_PASSWORD"}, func(end string) bool { return strings.HasSuffix(name, end) })
		return secret && !s.has(PassesCredentials)
	})
	if cmd.TerminalMode == contracts.TerminalPTY && os.Getenv("TERM") == "" {
		env = append(env, "TERM=xterm-256color")
	}
	for key, value := range cmd.Env {
		env = append(env, key+"="+value)
	}
	return env
}

// words splits a command line as direct mode does: quotes join, a backslash
// outside single quotes takes the next character as it is.
func words(line string) (list []string, fault string) {
	var word strings.Builder
	var quote rune
	open, escaped := false, false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			open, escaped = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, open = c, true
		case quote == 0 && unicode.IsSpace(c):
			if open {
				list = append(list, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(c)
			open = true
		}
	}
	if open {
		list = append(list, word.String())
	}
	switch {
	case escaped:
		fault = "Command ends with unfinished escape sequence"
	case quote != 0:
		fault = "Command contains unterminated quotes"
	case len(list) == 0:
		fault = "Command must contain an executable to run"
	}
	return list, fault
}
