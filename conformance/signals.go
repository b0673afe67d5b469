package conformance

import (
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// signals judges how a hosted runner ends by a signal: A110 and 5.9.
func signals() []Scenario {
	hosted := Needs{Transport: Hosted}
	exec := Needs{Transport: Hosted, Operation: contracts.OperationCommandExec}
	return []Scenario{
		hosted.scenario("signal/terminate", "A110 5.9", "SIGTERM drains, shows the drained state, and ends with status 0", signalDrains(syscall.SIGTERM)),
		hosted.scenario("signal/interrupt", "5.9", "SIGINT does the same", signalDrains(os.Interrupt)),
		exec.scenario("signal/during-drain", "A110", "A signal during a drain waits for it, and does not order another", func(s *Session) {
			r := s.spawned(start{})
			s.stubborn()
			done := make(chan *Answer, 1)
			ctx, cancel := s.within(drainTime)
			defer cancel()
			go func() { // ends with the drain or ctx; waited for below
				a, _ := s.send(ctx, draining(platformDrain))
				done <- a
			}()
			s.untilDraining("A110")
			r.signal("A110", syscall.SIGTERM)
			a := <-done
			if a == nil {
				s.fail("A110", "expected the drain to be answered in spite of the signal")
			}
			a.check()
			s.drained("A110", a.ok("A110"))
			if status := r.exits("A110", drainTime); status != 0 {
				s.fail("5.9:status", "expected exit status 0, got %d", status)
			}
			if m := s.onlyManifest("A110", r); m["reason"] != "ttl_expired" {
				s.fail("A110", "expected the manifest of the drain that was running, got reason %s", show(m["reason"]))
			}
		}),
		hosted.scenario("signal/after-drain", "5.9", "A signal after a drain only ends the process", func(s *Session) {
			r := s.spawned(start{})
			s.driver().prompt("hello")
			s.drain("5.9:status", platformDrain)
			r.signal("5.9:status", syscall.SIGTERM)
			if status := r.exits("5.9:status", drainTime); status != 0 {
				s.fail("5.9:status", "expected exit status 0, got %d", status)
			}
			s.onlyManifest("5.9:status", r)
		}),
		exec.scenario("signal/second", "5.9", "A second signal ends the process at once", func(s *Session) {
			r := s.spawned(start{})
			s.stubborn()
			r.signal("5.9:status", syscall.SIGTERM)
			s.untilDraining("5.9:status")
			r.signal("5.9:status", syscall.SIGTERM)
			if status := r.exits("5.9:status", exitTime); !slices.Contains([]int{130, 143}, status) {
				s.fail("5.9:status", "expected exit status 130 or 143 after a second signal, got %d", status)
			}
		}),
		hosted.scenario("signal/flush-fails", "5.9", "A drain by signal that was interrupted ends with status 3", func(s *Session) {
			r := s.spawned(start{})
			alice := s.driver()
			alice.prompt(trigger("flush_error", fields{"message": "the disk is full"}))
			alice.finishRun()
			r.signal("5.9:status", syscall.SIGTERM)
			if status := r.exits("5.9:status", drainTime); status != 3 {
				s.fail("5.9:status", "expected exit status 3 after an interrupted drain, got %d", status)
			}
			if m := s.onlyManifest("5.9:status", r); section(m, "runtime")["flush_status"] != "failed" {
				s.fail("5.9:status", "expected a manifest that says so, got %s", show(m["runtime"]))
			}
		}),
	}
}

func signalDrains(sig os.Signal) func(*Session) {
	return func(s *Session) {
		r := s.spawned(start{})
		alice, own := s.attached()
		socket := s.onSocket("sophie")
		alice.prompt("hello")
		r.signal("A110", sig)
		own.expect("A110", drainedSnapshot())
		own.fades("A96:ends")
		if socket != nil {
			socket.closesWithin("5.9:status", 2*exitTime, contracts.CodeGoingAway.CloseCode())
		}
		if status := r.exits("A110", drainTime); status != 0 {
			s.fail("5.9:status", "expected exit status 0 after a drain, got %d", status)
		}
		m := s.onlyManifest("A110", r)
		if m["reason"] != "process_shutdown" || m["requested_by"] != "maestro_web_server" {
			s.fail("A110", "expected a drain for process_shutdown by maestro_web_server, got %s by %s", show(m["reason"]), show(m["requested_by"]))
		}
	}
}

// onlyManifest reads the one manifest that a runner wrote.
func (s *Session) onlyManifest(rule string, r *runner) map[string]any {
	files := s.manifests(r)
	if len(files) != 1 {
		s.fail(rule, "expected one manifest, got %q", files)
	}
	return s.readManifest(rule, r.workspace+"/.maestro/runner-snapshots/"+files[0])
}

// stubborn starts a command that a drain needs a second or two to end.
func (s *Session) stubborn() *Peer {
	alice, p := s.toolUser()
	alice.start("R84", "stubborn", `trap "" TERM; echo armed; sleep 60; sleep 60`)
	p.expect("R85", message("utility_command_output").with("command_id", "stubborn"))
	return p
}

// untilDraining waits until the identity says that a drain is running.
func (s *Session) untilDraining(rule string) {
	deadline := time.Now().Add(s.config.Patience)
	for {
		a, err := s.send(s.ctx, request{who: "alice", method: http.MethodGet, path: identityPath})
		if err != nil { // the runner may have ended
			s.fail(rule, "expected the identity to show the drain, got: %v", err)
		}
		a.check()
		switch {
		case a.at("draining") == true:
			return
		case time.Now().After(deadline):
			s.fail(rule, "expected the identity to show the drain within %s, got %s", s.config.Patience, a.said())
		}
		s.pause(rule, 10*time.Millisecond)
	}
}
