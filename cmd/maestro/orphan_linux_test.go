package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A family is a command with processes of its own: in its group, in a group and
// in a session of their own, and a daemon of two generations. All but the
// obedient are deaf to what asks them to end. Each has written its id to the file
// named by $ids when the command says so.
const family = `$deaf
sleep 1000 & echo $! >>$ids
set -m; sleep 1000 & echo $! >>$ids; set +m
setsid sh -c 'echo $$ >>$ids; setsid sh -c "echo \$\$ >>$ids; $deaf; while :; do sleep 1; done" & exec sleep 1000' </dev/null >/dev/null 2>&1 &
echo $$ >>$ids
until [ $(wc -l <$ids) = 5 ]; do sleep 0.1; done
echo ready; wait; wait; wait`

const membersOfFamily = 5

// endings are the ways in which commands end that did not want to.
var endings = []struct {
	name   string
	mode   []string
	end    func(t *testing.T, r *running, c *client.Client, ids []string)
	exited bool // the events of the end are shown
}{
	{name: "terminate", exited: true, end: func(t *testing.T, _ *running, c *client.Client, ids []string) {
		for i, id := range ids {
			accepted(t, c, &contracts.UtilityCommandTerminate{CommandID: id, Force: i%2 == 1})
		}
	}},
	{name: "interrupt", exited: true, end: func(t *testing.T, _ *running, c *client.Client, _ []string) {
		accepted(t, c, &contracts.Interrupt{})
	}},
	{name: "disconnect", end: func(t *testing.T, _ *running, c *client.Client, _ []string) {
		if err := c.Close(false); err != nil {
			t.Error(err)
		}
	}},
	{name: "drain", mode: []string{"hosted-runner", "--runner-session-id", "r", "--workspace-root", ".", "--auth", "off"}, end: func(t *testing.T, r *running, _ *client.Client, _ []string) {
		res, err := http.Post(r.ready.BaseURL+"/.well-known/evalops/remote-runner/drain", "application/json", strings.NewReader(`{"reason":"test"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("drain: got status %d, want 200", res.StatusCode)
		}
	}},
	{name: "SIGTERM", end: signalled(unix.SIGTERM)},
	{name: "SIGINT", end: signalled(unix.SIGINT)},
	{name: "SIGKILL", end: signalled(unix.SIGKILL)},
}

func signalled(sig unix.Signal) func(*testing.T, *running, *client.Client, []string) {
	return func(t *testing.T, r *running, _ *client.Client, _ []string) {
		if err := r.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = r.cmd.Wait() // how it ends is for other tests
	}
}

func accepted(t *testing.T, c *client.Client, cmd contracts.Command) {
	t.Helper()
	if _, err := c.Send(t.Context(), cmd); err != nil {
		t.Fatalf("%s: got %v, want it accepted", cmd.CommandType(), err)
	}
}

// Of 168 commands with grandchildren, 24 for each way to end them, nothing is left.
func TestNoProcessOutlivesWhatEndedIt(t *testing.T) {
	t.Parallel()
	const commands = 24
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			mode := e.mode
			if mode == nil {
				mode = []string{"serve", "--auth", "off"}
			}
			r := listening(t, append(mode, "--agent", "conformance")...)
			c := r.attach(client.WithRole(contracts.RoleController), client.WithHello(contracts.Hello{
				Role:         contracts.RoleController,
				Capabilities: &contracts.Capabilities{UtilityOperations: []contracts.UtilityOperation{contracts.OperationCommandExec}},
			}))
			ids := families(t, r, c, commands)
			members := membersOf(t, r, ids)
			e.end(t, r, c, ids)
			if e.exited {
				haveExited(t, c, ids)
			}
			t.Logf("all gone within %v", gone(t, members).Round(time.Millisecond))
		})
	}
}

// families starts commands, half of them on terminals and half of them deaf, and
// returns their ids once all their processes run.
func families(t *testing.T, r *running, c *client.Client, n int) (ids []string) {
	t.Helper()
	for i := range n {
		id := fmt.Sprintf("family-%d", i)
		cmd := &contracts.UtilityCommandStart{CommandID: id, Command: family, Env: map[string]string{"ids": filepath.Join(r.cmd.Dir, id), "deaf": "true"}}
		if i%4 < 2 {
			cmd.TerminalMode = contracts.TerminalPTY
		}
		if i%2 == 0 {
			cmd.Env["deaf"] = "trap '' TERM HUP INT"
		}
		accepted(t, c, cmd)
		ids = append(ids, id)
	}
	waiting := slices.Clone(ids)
	until(t, c, func(u client.Update) bool {
		out, ok := u.Event.(*contracts.UtilityCommandOutput)
		if ok && strings.Contains(out.Content, "ready") {
			waiting = slices.DeleteFunc(waiting, func(id string) bool { return id == out.CommandID })
		}
		return len(waiting) == 0
	})
	return ids
}

func haveExited(t *testing.T, c *client.Client, ids []string) {
	t.Helper()
	waiting := slices.Clone(ids)
	until(t, c, func(u client.Update) bool {
		if e, ok := u.Event.(*contracts.UtilityCommandExited); ok {
			waiting = slices.DeleteFunc(waiting, func(id string) bool { return id == e.CommandID })
		}
		return len(waiting) == 0
	})
}

// until reads until done.
func until(t *testing.T, c *client.Client, done func(client.Update) bool) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case <-late:
			t.Fatal("got no more, want the rest")
		default:
		}
		u, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if done(u) {
			return
		}
	}
}

// membersOf returns a descriptor for each process of the families.
func membersOf(t *testing.T, r *running, ids []string) (members []unix.PollFd) {
	t.Helper()
	for _, id := range ids {
		text, err := os.ReadFile(filepath.Join(r.cmd.Dir, id))
		if err != nil {
			t.Fatal(err)
		}
		for word := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatalf("process %d of %s: %v", pid, id, err)
			}
			t.Cleanup(func() { _ = unix.Close(fd) })
			members = append(members, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	if len(members) != membersOfFamily*len(ids) {
		t.Fatalf("got %d processes, want %d", len(members), membersOfFamily*len(ids))
	}
	return members
}

// gone waits until all have ended, and returns how long that took.
func gone(t *testing.T, members []unix.PollFd) time.Duration {
	t.Helper()
	began := time.Now()
	for len(members) > 0 {
		n, err := unix.Poll(members, int((patience - time.Since(began)).Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			t.Fatalf("got %d processes that live on (%v), want none", len(members), err)
		}
		members = slices.DeleteFunc(members, func(m unix.PollFd) bool { return m.Revents != 0 })
	}
	return time.Since(began)
}
