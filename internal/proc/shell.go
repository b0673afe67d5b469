package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// FindShell returns the shell for command lines: the first of preferred, $SHELL
// and /bin/bash that is executable, else sh.
func FindShell(preferred string) string {
	for _, path := range []string{preferred, os.Getenv("SHELL"), "/bin/bash"} {
		if path == "" {
			continue
		}
		if found, err := exec.LookPath(path); err == nil {
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
	if strings.ContainsRune(name, filepath.Separator) || strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return exec.LookPath(path)
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
