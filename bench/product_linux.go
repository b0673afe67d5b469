package main

import (
	"encoding/json"
	"errors"
	"fmt"
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
func (t *trial) runProduct(viewers, messages int) fanout {
	crowd := must(newCrowd())
	t.atEnd(crowd.close)
	dir := t.tempDir(t.bin)
	script := filepath.Join(dir, "script.json")
	check(writeScenario(script, messages))
	st := stage{t.serve(dir, "script:"+script), crowd}
	check(st.attach(t.ctx, st.addr, st.dialect, viewers))
	controller := must(st.add(st.addr, attachDialect(st.session, contracts.RoleController)))
	check(errors.Join(controller.prompt(promptWarm), st.await(t.ctx, warmUp), st.idle(t.ctx, settle)))
	f := st.measure(messages, false, func() int64 {
		began := time.Now().UnixNano()
		check(controller.prompt(promptRun))
		check(st.await(t.ctx, st.next+uint64(messages)))
		return began
	})
	f.allocs, f.messages = math.NaN(), math.NaN() // only the program itself could tell
	return f
}

// prompt sends a prompt on a viewer's connection, which is a controller's then.
func (v *viewer) prompt(content string) error {
	return writeAll(v.fd, appendMasked(nil, opText, fmt.Appendf(nil, `{"type":"prompt","content":%q}`, content)))
}

// serve starts the built program with an agent, and workspace and state in dir,
// where it restores what an earlier one left. flags come after its own.
func (t *trial) serve(dir, agent string, flags ...string) *server {
	workspace := filepath.Join(dir, "workspace")
	check(os.MkdirAll(workspace, 0o700))
	s := t.launch("maestro", append([]string{"serve", "--agent", agent, "--auth", "off", "--listen", "127.0.0.1:0",
		"--workspace", workspace, "--state-dir", filepath.Join(dir, "state"), "--ready-stdout", "--exit-on-stdin-eof"}, flags...)...)
	var ready struct {
		BaseURL   string `json:"baseUrl"`
		SessionID string `json:"sessionId"`
	}
	check(s.greeted(&ready))
	s.addr, s.session = must(url.Parse(ready.BaseURL)).Host, ready.SessionID
	s.dialect = attachDialect(s.session, contracts.RoleViewer)
	return s
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
