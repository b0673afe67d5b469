package proc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"
)

// FindShell returns the shell for command lines: the first of preferred, $SHELL
// and /bin/bash that is executable, else sh.
func FindShell(preferred string) string {
	for _, path := range []string{preferred, os.Getenv("SHELL"), "/bin/bash"} {
		if found, err := exec.LookPath(path); err == nil { // an empty path is not found
			return found
		}
	}
	return "sh"
}

// FindProgram returns the path of the program name for a process with
// environment env in directory dir. A name with a separator is relative to dir.
// Any other is looked up in the PATH of env, without its relative entries. The
// error is that of [exec.LookPath].
func FindProgram(name, dir string, env []string) (string, error) {
	if strings.ContainsAny(name, "/"+string(filepath.Separator)) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return exec.LookPath(name)
	}
	for _, in := range filepath.SplitList(lookup(env, "PATH")) {
		if !filepath.IsAbs(in) {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(in, name)); err == nil {
			return found, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// lookup returns the value of the last entry for name in env.
func lookup(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		key, value, _ := strings.Cut(env[i], "=")
		if key == name || runtime.GOOS == "windows" && strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}

// The errors of command lines. The texts are shown to users.
var (
	//lint:ignore ST1005 clients know it in this form
	ErrDanglingEscape = errors.New("Command ends with unfinished escape sequence")
	//lint:ignore ST1005 clients know it in this form
	ErrOpenQuote = errors.New("Command contains unterminated quotes")
	//lint:ignore ST1005 clients know it in this form
	ErrNoExecutable = errors.New("Command must contain an executable to run")
)

// SplitWords splits a command line into arguments without a shell, which white space
// separates. Single quotes make all text up to the next one literal; elsewhere, also in
// double quotes, a backslash makes the next character literal. Nothing is expanded.
func SplitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune   // the open quote, or 0
	var begun bool   // word exists, even if empty
	var escaped bool // the last character was an escaping backslash
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			begun, escaped = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			begun, quote = true, c
		case unicode.IsSpace(c):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			begun = true
			word.WriteRune(c)
		}
	}
	if begun {
		words = append(words, word.String())
	}
	switch {
	case escaped:
		return words, ErrDanglingEscape
	case quote != 0:
		return words, ErrOpenQuote
	case len(words) == 0:
		return words, ErrNoExecutable
	}
	return words, nil
}
