package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/internal/agent/heddle"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
	"github.com/seed-028515a8/maestro/internal/proc"
	"github.com/seed-028515a8/maestro/internal/transport/auth"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// A finding is what doctor says about one thing.
type finding struct {
	what string
	said string // what is so
	todo string // what to do; empty if nothing needs to be done
	bad  bool   // the server would not start, or not work
}

func doctorCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check whether this machine can run maestro serve, and say what to do", Args: cobra.NoArgs,
		Long: `Doctor takes the flags, the environment and the file of serve and checks what serve would
need: the state directory, the token, the port, the workspace, the pages, the agent, git,
limits of the system, the clock and proxies. It starts no agent. It ends with 1 if serve would
not work.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.check(cmd); err != nil {
				return err
			}
			return s.diagnose(cmd.OutOrStdout())
		},
	}
	registerServe(cmd, &s)
	return cmd
}

// diagnose prints all findings. Its error says how many are bad.
func (s *settings) diagnose(out io.Writer) error {
	bad := 0
	for _, check := range []func(*settings) finding{
		checkState, checkTokenFile, checkPort, checkWorkspace, checkPages, checkAgent, checkGit, checkFiles, checkWatches, checkClock, checkProxy,
	} {
		f := check(s)
		sign := "ok  "
		if f.todo != "" {
			sign = "note"
		}
		if f.bad {
			sign = "FAIL"
			bad++
		}
		if _, err := fmt.Fprintf(out, "%s  %-16s %s\n", sign, f.what, f.said); err != nil {
			return err
		}
		if f.todo != "" {
			if _, err := fmt.Fprintf(out, "      %-16s %s\n", "", f.todo); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of these would keep the server from working", bad)
	}
	return nil
}

func (s *settings) root() string { return cmp.Or(s.stateDir, defaultStateRoot()) }

func checkState(s *settings) finding {
	f := finding{what: "state directory", said: s.root()}
	if err := wiring.TryWrite(s.root()); err != nil {
		f.said, f.todo, f.bad = err.Error(), "choose another directory with --state-dir, or let this user write there", true
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			f.todo = "free space or inodes (df, df -i): maestro sessions prune --unused 30d --dry-run --state-dir " + s.root() + " lists sessions that can go"
		}
		return f
	}
	if info, err := os.Stat(s.root()); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		f.said = fmt.Sprintf("%s has the mode %#o", s.root(), info.Mode().Perm())
		f.todo = "others on this machine may list it: chmod 700 " + s.root()
	}
	return f
}

func checkTokenFile(s *settings) finding {
	f := finding{what: "token", said: tokenFile(s.root())}
	switch _, err := os.Stat(f.said); {
	case s.auth == "off":
		f.said, f.todo = "--auth off: everybody on this machine may control the agent", "leave out --auth off unless the machine is only yours"
		return f
	case errors.Is(err, fs.ErrNotExist):
		f.said += " will be created at the first start"
		return f
	}
	if _, err := auth.LoadOrCreateToken(f.said); err != nil { // it exists, so it is not created
		f.said, f.todo, f.bad = err.Error(), "chmod 600 the file, or remove it to get a new token", true
	}
	return f
}

func checkPort(s *settings) finding {
	if _, passed := systemdName(s.listen); passed {
		return finding{what: "port", said: "systemd passes it to the server, as the .socket unit says"}
	}
	f := finding{what: "port", said: s.listen + " is free"}
	ln, err := net.Listen("tcp", s.listen)
	if err == nil {
		if !isLoopback(ln.Addr()) && s.tlsCert == "" && !s.access.BehindTLS {
			f.said, f.todo = s.listen+" is free, and other machines can reach it without TLS", "use --tls-cert and --tls-key, or a proxy with TLS and --behind-tls"
		}
		_ = ln.Close() // nothing was accepted
		return f
	}
	f.said, f.todo, f.bad = err.Error(), "choose another port with --listen", true
	if isMaestro(s.listen) {
		f.said, f.todo = "a maestro already serves on "+s.listen, "attach to it with maestro attach, or choose another port with --listen"
	}
	return f
}

// isMaestro reports whether a server at addr answers as maestro does.
func isMaestro(addr string) bool {
	c := http.Client{Timeout: 2 * time.Second}
	resp, err := c.Get("http://" + addr + "/readyz")
	if err != nil {
		return false
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	_ = resp.Body.Close() // only read from
	return err == nil && strings.Contains(string(text), `"draining"`)
}

func checkWorkspace(s *settings) finding {
	f := finding{what: "workspace"}
	dir, err := filepath.Abs(s.workspace)
	if err == nil {
		_, err = os.ReadDir(dir)
	}
	if f.said = dir; err != nil {
		f.said, f.todo, f.bad = err.Error(), "choose the directory that the agent works in with --workspace", true
	}
	return f
}

func checkPages(s *settings) finding {
	f := finding{what: "pages", said: cmp.Or(s.pages, "none but its own")}
	_, agentWrites, err := s.openPages(s.root())
	switch {
	case err != nil:
		f.said, f.todo, f.bad = err.Error(), "choose a directory that holds only pages with --pages", true
	case agentWrites:
		f.todo = agentWritesPages + ": choose a directory outside of the workspace"
	}
	return f
}

// agentPrograms are programs that are agents, and the values of --agent that start them.
var agentPrograms = []struct{ program, agent string }{
	{"opencode", "acp:opencode acp"}, {"claude-code-acp", "acp:claude-code-acp"}, {"codex-acp", "acp:codex-acp"}, {"gemini", "acp:gemini --experimental-acp"},
}

func checkAgent(s *settings) finding {
	f := finding{what: "agent", said: s.agent}
	kind, line, _ := strings.Cut(s.agent, ":")
	switch kind {
	case "acp", "headless", "heddle", "chord":
		path, err := s.findAgent(kind, line)
		if f.said = path; err != nil {
			f.said, f.todo, f.bad = err.Error(), "install it, or name its path in --agent", true
		}
	case "llm":
		provider, _, _ := strings.Cut(line, "/")
		variables := "OPENAI_"
		if provider == "anthropic" {
			variables = "ANTHROPIC_"
		}
		if os.Getenv(variables+"API_KEY") == "" && cmp.Or(s.runtime.ModelURL, os.Getenv(variables+"BASE_URL")) == "" {
			f.said, f.todo, f.bad = variables+"API_KEY is not set", "set it, or name a provider that needs none with --model-url", true
		}
	case "shell":
		f.said = "shell, which runs each prompt as a command"
		for _, known := range agentPrograms {
			if _, err := exec.LookPath(known.program); err == nil {
				f.todo = "a coding agent is installed: --agent '" + known.agent + "'"
			}
		}
	}
	return f
}

// findAgent returns the path of the program in a value of --agent, as the server finds it.
func (s *settings) findAgent(kind, line string) (path string, err error) {
	words, err := proc.SplitWords(line)
	if err == nil && kind == "heddle" {
		_, words, err = heddle.Parse(words)
	}
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(s.workspace)
	if err != nil {
		return "", err
	}
	return proc.FindProgram(words[0], dir, os.Environ())
}

func checkGit(*settings) finding {
	out, err := exec.Command("git", "--version").Output()
	if err != nil {
		return finding{what: "git", said: err.Error(), todo: "without git, searches do not know what is tracked, and drains have no revision: install git"}
	}
	return finding{what: "git", said: strings.TrimSpace(string(out))}
}

// openFiles finds the limit in /proc/self/limits. The Go runtime has raised it as far as
// it may.
var openFiles = lazyregexp.New(`(?m)^Max open files +(\d+)`)

func checkFiles(s *settings) finding {
	f := finding{what: "open files", said: "no limit is known"}
	text, _ := os.ReadFile("/proc/self/limits") // only Linux has it
	found := openFiles().FindSubmatch(text)
	if found == nil {
		return f
	}
	f.said = string(found[1]) + " may be open"
	limit, _ := strconv.Atoi(string(found[1])) // one that is too large is the largest number
	if want := s.clients.Connections + 1024; limit < want {
		f.todo = fmt.Sprintf("--max-connections and the rest need %d: raise the limit (ulimit -n, LimitNOFILE=), or lower --max-connections", want)
	}
	return f
}

func checkWatches(s *settings) finding {
	f := finding{what: "file watches", said: "by the system"}
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	most, errNumber := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || errNumber != nil {
		return f // not Linux
	}
	f.said = fmt.Sprintf("%d directories may be watched", most)
	if most < s.tools.MaxWatchedDirs {
		f.todo = fmt.Sprintf("large workspaces are searched slowly: sysctl fs.inotify.max_user_watches=%d", 10*s.tools.MaxWatchedDirs)
	}
	return f
}

func checkClock(*settings) finding {
	f := finding{what: "clock", said: time.Now().Format(time.RFC3339)}
	if built, err := time.Parse(time.RFC3339, vcs()["vcs.time"]); err == nil && time.Now().Before(built) {
		f.todo, f.bad = "it is before this program was built: credentials would not end when they should. Set the clock", true
	}
	return f
}

func checkProxy(s *settings) finding {
	f := finding{what: "proxy", said: "none"}
	addr := s.listen
	if _, passed := systemdName(addr); passed {
		addr = defaultListen
	}
	target, err := url.Parse("http://" + addr)
	if err != nil {
		return f
	}
	through, err := http.ProxyFromEnvironment(&http.Request{URL: target})
	switch {
	case err != nil:
		f.said, f.todo = err.Error(), "correct HTTP_PROXY"
	case through != nil:
		f.said, f.todo = "requests to this server go through "+through.Redacted(), "add its host to NO_PROXY"
	case os.Getenv("HTTPS_PROXY")+os.Getenv("https_proxy") != "":
		f.said = "for other machines, as HTTPS_PROXY says"
	}
	return f
}
