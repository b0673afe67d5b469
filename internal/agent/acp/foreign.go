package acp

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

// speaksAs maps programs that speak the protocol only with an argument, or
// through another program, to the right command line.
var speaksAs = map[string]string{
	"claude":       "claude-agent-acp",
	"codex":        "codex-acp",
	"copilot":      "copilot --acp",
	"cursor-agent": "cursor-agent acp",
	"gemini":       "gemini --acp",
	"goose":        "goose acp",
	"kimi":         "kimi acp",
	"maestro":      "maestro acp",
	"opencode":     "opencode acp",
	"qwen":         "qwen --acp",
}

// advice returns a hint on what a command line may lack, "" if it names the
// protocol. known says that the hint is certain.
func advice(argv []string) (text string, known bool) {
	if slices.ContainsFunc(argv[1:], namesProtocol) {
		return "", false
	}
	program := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	if line, ok := speaksAs[program]; ok {
		return fmt.Sprintf("try --agent 'acp:%s'", line), true
	}
	if namesProtocol(program) {
		return "", false
	}
	return "many programs speak it only with an argument such as acp or --acp", false
}

func namesProtocol(word string) bool { return strings.Contains(strings.ToLower(word), "acp") }

// foreign reports whether the program probably does not speak the protocol: it
// has not answered, and it wrote something else or lacks an argument.
func (p *peer) foreign() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := advice(p.a.argv)
	return !p.introduced && (known || p.garbage != "")
}

// hint returns what a program that has not answered may lack, "" if unknown.
func (p *peer) hint() (text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.introduced {
		text, _ = advice(p.a.argv)
	}
	return text
}

// explain adds details to an error of the start. The process has ended.
func (p *peer) explain(err error) error {
	hint := p.hint()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !errors.Is(err, rpc.ErrEnded):
	case p.introduced:
		err = fmt.Errorf("%w: %w", err, p.proc.Account())
	default:
		err = fmt.Errorf("it ended before it spoke the Agent Client Protocol: %w", p.proc.Account())
	}
	if p.garbage != "" {
		err = fmt.Errorf("%w; it wrote something that is no message: %q", err, mask.Text(p.garbage))
	}
	if hint != "" && p.a.life.Err() == nil { // otherwise it was closed, which is no fault
		err = fmt.Errorf("%w; %s", err, hint)
	}
	return err
}
