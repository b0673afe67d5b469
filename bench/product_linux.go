package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-028515a8/maestro/bench/control"
	"github.com/seed-028515a8/maestro/contracts"
)

// The prompts of the product's scenario.
const (
	promptWarm = "warm up"
	promptRun  = "run"
)

// runProduct measures a burst through the whole program: a controller prompts,
// the script agent answers with all messages, the viewers and the controller
// get them. Their marks carry no time, because the script is made beforehand.
func (b *bench) runProduct(ctx context.Context, c contender, viewers, messages int) (f fanout, err error) {
	dir, err := os.MkdirTemp(b.bin, "serve-")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	s, session, err := serve(ctx, b.built[c.program], dir, messages)
	if err != nil {
		return f, err
	}
	crowd, err := newCrowd()
	if err != nil {
		return f, errors.Join(err, s.stop())
	}
	st := stage{s, crowd}
	defer func() { err = errors.Join(err, st.tearDown()) }()
	if err := st.attach(ctx, st.addr, st.dialect, viewers); err != nil {
		return f, err
	}
	controller, err := st.add(st.addr, attachDialect(session, contracts.RoleController))
	if err != nil {
		return f, fmt.Errorf("attach the controller: %w", err)
	}
	if err := errors.Join(controller.prompt(promptWarm), st.await(ctx, warmUp), st.idle(ctx, settle)); err != nil {
		return f, err
	}
	f, err = st.measure(ctx, messages, false, func() (int64, error) {
		began := time.Now().UnixNano()
		if err := controller.prompt(promptRun); err != nil {
			return 0, err
		}
		return began, st.await(ctx, st.next+uint64(messages))
	})
	f.allocs, f.messages = math.NaN(), math.NaN() // only the program itself could tell
	return f, err
}

// prompt sends a prompt on a viewer's connection, which is a controller's then.
func (v *viewer) prompt(content string) error {
	return writeAll(v.fd, appendMasked(nil, opText, fmt.Appendf(nil, `{"type":"prompt","content":%q}`, content)))
}

// serve starts the program with its script, workspace and state in dir, and
// returns it with the id of its session.
func serve(ctx context.Context, path, dir string, messages int) (s *server, session string, err error) {
	script := filepath.Join(dir, "script.json")
	if err := writeScenario(script, messages); err != nil {
		return nil, "", err
	}
	return serveAgent(ctx, path, dir, "script:"+script)
}

// serveAgent starts the program with an agent, and workspace and state in dir,
// where it restores what an earlier one left. flags come after its own.
func serveAgent(ctx context.Context, path, dir, agent string, flags ...string) (s *server, session string, err error) {
	workspace, ready := filepath.Join(dir, "workspace"), filepath.Join(dir, "ready.json")
	if err := errors.Join(os.MkdirAll(workspace, 0o700), os.RemoveAll(ready)); err != nil {
		return nil, "", err
	}
	s, err = launch(ctx, path, append([]string{"serve", "--agent", agent, "--auth", "off", "--listen", "127.0.0.1:0",
		"--workspace", workspace, "--state-dir", filepath.Join(dir, "state"), "--ready-file", ready, "--exit-on-stdin-eof"}, flags...)...)
	if err != nil {
		return nil, "", err
	}
	base, session, err := awaitReady(ctx, ready)
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("wait for %s: %w", path, err), s.stop())
	}
	s.addr, s.dialect = base.Host, attachDialect(session, contracts.RoleViewer)
	return s, session, nil
}

// awaitReady waits for the file that the program writes once it listens.
func awaitReady(ctx context.Context, path string) (base *url.URL, session string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, greetTimeout, fmt.Errorf("not ready after %v", greetTimeout))
	defer cancel()
	for {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			if err := pause(ctx, 5*time.Millisecond); err != nil {
				return nil, "", err
			}
			continue
		}
		if err != nil {
			return nil, "", err
		}
		var ready struct {
			BaseURL   string `json:"baseUrl"`
			SessionID string `json:"sessionId"`
		}
		if err := json.Unmarshal(text, &ready); err != nil {
			return nil, "", err
		}
		base, err := url.Parse(ready.BaseURL)
		return base, ready.SessionID, err
	}
}

// writeScenario writes the script of a run: every message is a step of its own,
// because its mark is.
func writeScenario(path string, messages int) error {
	type step struct {
		Say string `json:"say"`
	}
	type prompt struct {
		Match string `json:"match"`
		Steps []step `json:"steps"`
	}
	next := uint64(0)
	says := func(count int) []step {
		steps := make([]step, count)
		for i := range steps {
			steps[i].Say = string(control.Text(next, time.UnixMicro(0)))
			next++
		}
		return steps
	}
	text, err := json.Marshal(map[string][]prompt{"prompts": {
		{Match: promptWarm, Steps: says(warmUp)},
		{Match: promptRun, Steps: says(messages)},
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
