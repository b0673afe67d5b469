package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// FindShell returns the shell to run command lines with: preferred, else
// $SHELL, else /bin/bash, of which the first that can be run counts, else sh.
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

// FindProgram returns the path of the program that a process with environment
// env means by name in directory dir: a name with a separator counts from dir,
// any other is looked for in the PATH of env, whose relative entries are left
// out. The error is that of [exec.LookPath].
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

// lookup returns the value that the last entry for name in env has.
func lookup(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		key, value, _ := strings.Cut(env[i], "=")
		if key == name || runtime.GOOS == "windows" && strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}
