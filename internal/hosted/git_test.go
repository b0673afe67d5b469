package hosted

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// git runs git in dir as somebody with a name.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestGitStateIsThatOfTheWorkspace(t *testing.T) {
	root := folder(t)
	ours := filepath.Join(root, ".maestro")
	state := func() string {
		g := gitState(context.Background(), root, ours)
		if g == nil {
			return "none"
		}
		return fmt.Sprintf("%s %s %v", g.Commit, g.Branch, g.Dirty)
	}
	expect := func(want string) {
		t.Helper()
		if got := state(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	expect("none")
	git(t, root, "init", "--initial-branch=trunk")
	expect(" trunk false")
	write(t, filepath.Join(ours, "runner-snapshots/m.json"), "{}")
	expect(" trunk false") // what we keep there is no change
	write(t, filepath.Join(root, "a.txt"), "a")
	expect(" trunk true")
	git(t, root, "add", "a.txt")
	git(t, root, "commit", "-m", "one")
	commit := git(t, root, "rev-parse", "HEAD")
	expect(commit + " trunk false")
	write(t, filepath.Join(root, "a.txt"), "b")
	expect(commit + " trunk true")
	git(t, root, "checkout", "a.txt")
	git(t, root, "checkout", "--detach")
	expect(commit + "  false")
}

func TestGitLearnsNoSecretAndRunsNoMonitor(t *testing.T) {
	root := folder(t)
	git(t, root, "init")
	write(t, filepath.Join(root, "a.txt"), "a\n")
	write(t, filepath.Join(root, ".gitattributes"), "*.txt filter=spy\n")
	git(t, root, "add", "--all")
	git(t, root, "commit", "-m", "one")
	seen, monitored := filepath.Join(root, "seen"), filepath.Join(root, "monitored")
	git(t, root, "config", "filter.spy.clean", "env > '"+seen+"'; cat")
	git(t, root, "config", "core.fsmonitor", "touch '"+monitored+"'; false")
	write(t, filepath.Join(root, "a.txt"), "b\n") // the filter runs to see whether that is a change
	t.Setenv("PROVIDER_API_KEY", "sk-secret")
	if g := gitState(context.Background(), root); g == nil || !g.Dirty {
		t.Fatalf("got %+v, want a dirty repository", g)
	}
	env, err := os.ReadFile(seen)
	if err != nil {
		t.Fatalf("the filter did not run, so this proves nothing: %v", err)
	}
	if strings.Contains(string(env), "sk-secret") {
		t.Errorf("got the secret in the environment of git's child:\n%s", env)
	}
	if _, err := os.Stat(monitored); err == nil {
		t.Errorf("git ran the monitor that the workspace configures")
	}
}

func TestGitOutputIsBounded(t *testing.T) {
	var h head
	for range 100 {
		if n, err := h.Write([]byte(strings.Repeat("# x\n", 1000))); n != 4000 || err != nil {
			t.Fatalf("got %d, %v; want everything taken", n, err)
		}
	}
	if len(h.kept) > maxGitLines || !h.state().Dirty {
		t.Errorf("got %d bytes kept and %+v, want at most %d and dirty", len(h.kept), h.state(), maxGitLines)
	}
	want := contracts.GitState{Commit: "c0ffee", Branch: "fix/some thing"}
	h = head{kept: []byte("# branch.oid c0ffee\n# branch.head fix/some thing\n# branch.ab +0 -0\n")}
	if got := h.state(); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}
