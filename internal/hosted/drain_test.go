package hosted

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// drain drains r and fails the test if that is refused.
func drain(t *testing.T, r *Runner, body string) *contracts.DrainAnswer {
	t.Helper()
	answer, _, err := r.Drain(t.Context(), []byte(body))
	if err != nil {
		t.Fatalf("drain %s: %v", body, err)
	}
	return answer
}

// golden compares text, made readable and with what differs from run to run
// replaced, with a file.
func golden(t *testing.T, name string, r *Runner, text []byte) {
	t.Helper()
	text = bytes.ReplaceAll(text, []byte(r.config.WorkspaceRoot), []byte("/workspace"))
	text = regexp.MustCompile(`-\d{6}\.json`).ReplaceAll(text, []byte("-000000.json"))
	got := new(bytes.Buffer)
	if err := indent(got, text); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestManifestSaysEverything(t *testing.T) { // A90, A91, A102
	for name, tt := range map[string]struct {
		session *puppet
		body    string
	}{
		"drained.json": {
			session: &puppet{facts: story(t)},
			body:    `{"reason":"ttl_expired","requested_by":"platform","export_paths":["notes.md","."]}`,
		},
		"skipped.json": {session: &puppet{}},
		"interrupted.json": {
			session: &puppet{
				facts:   contracts.Quiesced{Cursor: 7},
				quiesce: func(context.Context, int) string { return "disk full" },
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // for the time
				p := tt.session
				p.id = "sess_alpha"
				r := runner(t, p)
				answer := drain(t, r, tt.body)
				file, err := os.ReadFile(answer.ManifestPath)
				if err != nil {
					t.Fatal(err)
				}
				golden(t, name, r, file)
				text, err := contracts.EncodeBody(answer)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Contains(text, bytes.TrimSpace(file)) {
					t.Errorf("got an answer whose manifest is not that of the file:\n%s", text)
				}
			})
		})
	}
}

func TestTenConcurrentDrainsAreOne(t *testing.T) { // A98, A99
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		p := &puppet{id: "sess_alpha", facts: story(t), quiesce: func(context.Context, int) string {
			<-open
			return ""
		}}
		r := runner(t, p)
		answers := make([]*contracts.DrainAnswer, 10)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() {
				answer, replayed, err := r.Drain(t.Context(), fmt.Appendf(nil, `{"reason":"number %d"}`, i))
				if err != nil || replayed {
					t.Errorf("got replayed %v, %v; want the result of the running drain", replayed, err)
				}
				answers[i] = answer
			})
		}
		synctest.Wait() // all ten wait
		if id := r.Identity(); id.Ready || !id.Draining || id.DrainStatus != "" {
			t.Errorf("got %+v while draining, want draining and not ready", id)
		}
		close(open)
		wg.Wait()
		for i, answer := range answers {
			if !reflect.DeepEqual(answer, answers[0]) {
				t.Errorf("answer %d: got %+v, want %+v", i, answer, answers[0])
			}
		}
		answer, replayed, err := r.Drain(t.Context(), nil)
		if answer != answers[0] || !replayed || err != nil {
			t.Errorf("again: got %+v, %v, %v; want the stored answer", answer, replayed, err)
		}
		if again, replayed, err := r.Drain(t.Context(), []byte(`{"export_paths":["notes.md"]}`)); again != answer || !replayed || err != nil {
			t.Errorf("with other paths: got %+v, %v, %v; want the stored answer", again, replayed, err)
		}
		if interrupted, err := r.DrainForShutdown(t.Context()); interrupted || err != nil {
			t.Errorf("at the end of the process: got %v, %v; want the stored answer", interrupted, err)
		}
		if got := manifests(t, r); len(got) != 1 {
			t.Errorf("got manifests %q, want one", got)
		}
		if len(p.reasons) != 1 || !slices.Equal(p.concluded, []bool{true}) {
			t.Errorf("got %d calls and conclusions %v, want one each", len(p.reasons), p.concluded)
		}
	})
}

func TestInterruptedDrainIsTriedAgain(t *testing.T) { // A93
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{id: "sess_alpha", facts: story(t), quiesce: func(_ context.Context, n int) string {
			return []string{"disk full", "disk full", ""}[n-1]
		}}
		r := runner(t, p)
		for n := 1; n <= 2; n++ {
			answer := drain(t, r, "")
			if answer.Status != contracts.DrainInterrupted || answer.Manifest.Runtime.Error != "disk full" {
				t.Fatalf("attempt %d: got %s, %q; want interrupted, disk full", n, answer.Status, answer.Manifest.Runtime.Error)
			}
			if id := r.Identity(); !id.Draining || id.Ready || id.DrainStatus != contracts.DrainInterrupted || id.DrainManifestPath != answer.ManifestPath {
				t.Errorf("attempt %d: got %+v, want draining, interrupted", n, id)
			}
			time.Sleep(time.Second)
		}
		answer := drain(t, r, "")
		if answer.Status != contracts.Drained || answer.Manifest.Runtime.FlushStatus != contracts.FlushCompleted {
			t.Errorf("got %s, %s; want drained, completed", answer.Status, answer.Manifest.Runtime.FlushStatus)
		}
		if _, replayed, err := r.Drain(t.Context(), nil); !replayed || err != nil {
			t.Errorf("got replayed %v, %v; want the stored answer", replayed, err)
		}
		if want := []bool{false, false, true}; !slices.Equal(p.concluded, want) || len(p.reasons) != 3 {
			t.Errorf("got conclusions %v of %d attempts, want %v of 3", p.concluded, len(p.reasons), want)
		}
		want := contracts.RunnerIdentity{
			ProtocolVersion: contracts.IdentityProtocol, RunnerSessionID: "mrs_41", OwnerInstanceID: "gen_9",
			Draining: true, DrainStatus: contracts.Drained, DrainManifestPath: answer.ManifestPath, DrainedAt: "2000-01-01T00:00:02.000Z",
		}
		if got := r.Identity(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestFlushHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{id: "sess_alpha", facts: story(t), quiesce: func(ctx context.Context, _ int) string {
			<-ctx.Done()
			return "drain_timeout: the agent did not stop"
		}}
		r := runner(t, p, "--flush-timeout", "3s")
		began := time.Now()
		answer := drain(t, r, "")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("got an answer after %v, want 3s", took)
		}
		want := "drain_timeout: the agent did not stop"
		if answer.Status != contracts.DrainInterrupted || answer.Manifest.Runtime.Error != want {
			t.Errorf("got %s, %q; want interrupted, %q", answer.Status, answer.Manifest.Runtime.Error, want)
		}
		if c := answer.Manifest.Runtime.Cursor; c == nil || *c != 42 {
			t.Errorf("got cursor %v, want what is known of the session", c)
		}
	})
}

// A caller that goes does not take the drain with it: a pre-stop hook waits for
// less than a drain may take.
func TestDrainOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		p := &puppet{id: "sess_alpha", facts: story(t), quiesce: func(ctx context.Context, _ int) string {
			<-open
			if ctx.Err() != nil {
				return ctx.Err().Error()
			}
			return ""
		}}
		r := runner(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if _, _, err := r.Drain(ctx, nil); !errors.Is(err, &contracts.Error{Code: contracts.CodeTimeout}) {
			t.Errorf("got %v, want timeout", err)
		}
		close(open)
		interrupted, err := r.DrainForShutdown(t.Context())
		if interrupted || err != nil {
			t.Errorf("got %v, %v; want the running drain's end", interrupted, err)
		}
		if got := manifests(t, r); len(got) != 1 || len(p.reasons) != 1 {
			t.Errorf("got manifests %q of %d attempts, want one", got, len(p.reasons))
		}
	})
}

func TestReasonIsToldToTheSession(t *testing.T) { // A110
	for _, tt := range []struct{ body, told, reason, requester string }{
		{"", "platform_requested_drain", "", ""},
		{" \n", "platform_requested_drain", "", ""},
		{`{"stop_reason":" ttl ","requestedBy":"ops"}`, "ttl", "ttl", "ops"},
		{"shutdown", "process_shutdown", "process_shutdown", "maestro_web_server"},
	} {
		p := &puppet{id: "sess_alpha"}
		r := runner(t, p)
		if tt.body == "shutdown" {
			if interrupted, err := r.DrainForShutdown(t.Context()); interrupted || err != nil {
				t.Errorf("got %v, %v; want a drain", interrupted, err)
			}
			tt.body = ""
		}
		answer := drain(t, r, tt.body)
		if p.reasons[0] != tt.told || answer.Reason != tt.reason || answer.RequestedBy != tt.requester || answer.Manifest.Reason != tt.reason {
			t.Errorf("%q: got %q and %+v, want %+v", tt.body, p.reasons, answer, tt)
		}
	}
}

func TestShutdownTellsThatItWasInterrupted(t *testing.T) {
	p := &puppet{id: "sess_alpha", quiesce: func(context.Context, int) string { return "agent is stuck" }}
	r := runner(t, p)
	if interrupted, err := r.DrainForShutdown(t.Context()); !interrupted || err != nil {
		t.Errorf("got %v, %v; want interrupted", interrupted, err)
	}
}

func TestRefusedDrainChangesNothing(t *testing.T) { // A95
	p := &puppet{id: "sess_alpha"}
	r := runner(t, p)
	for body, want := range map[string]contracts.Code{
		`[]`:                          contracts.CodeBadRequest,
		`{"reason":1}`:                contracts.CodeBadRequest,
		`{"export_paths":["gone"]}`:   contracts.CodeBadRequest,
		`{"export_paths":["../etc"]}`: contracts.CodeWorkspaceViolation,
		strings.Repeat(" ", 64_001):   contracts.CodePayloadTooLarge,
	} {
		if _, _, err := r.Drain(t.Context(), []byte(body)); !errors.Is(err, &contracts.Error{Code: want}) {
			t.Errorf("%.40q: got %v, want %s", body, err, want)
		}
	}
	if id := r.Identity(); !id.Ready || id.Draining || len(p.reasons) > 0 || len(manifests(t, r)) > 0 {
		t.Errorf("got %+v and %d attempts, want a runner that is ready", id, len(p.reasons))
	}
	drain(t, r, "")
	if _, _, err := r.Drain(t.Context(), []byte(`{"export_paths":["../etc"]}`)); !errors.Is(err, &contracts.Error{Code: contracts.CodeWorkspaceViolation}) {
		t.Errorf("after the drain: got %v, want workspace_violation all the same", err)
	}
}

func TestManifestThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	p := &puppet{id: "sess_alpha", facts: story(t)}
	r := runner(t, p)
	if err := os.Remove(r.config.SnapshotRoot); err != nil {
		t.Fatal(err)
	}
	write(t, r.config.SnapshotRoot, "in the way")
	for range 2 {
		if _, _, err := r.Drain(t.Context(), nil); !errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeFailed}) {
			t.Errorf("got %v, want runtime_failed", err)
		}
	}
	if id := r.Identity(); id.Ready || !id.Draining || id.DrainStatus != "" {
		t.Errorf("got %+v, want draining without a result", id)
	}
	if len(p.concluded) > 0 {
		t.Errorf("got conclusions %v without a manifest, want none", p.concluded)
	}
	if err := os.Remove(r.config.SnapshotRoot); err != nil {
		t.Fatal(err)
	}
	if answer := drain(t, r, ""); answer.Status != contracts.Drained || len(manifests(t, r)) != 1 {
		t.Errorf("got %s and %q, want drained and one manifest", answer.Status, manifests(t, r))
	}
}

// swapping returns a puppet in whose first Quiesce the agent, which still runs,
// replaces a path of the workspace by a link to outside.
func swapping(t *testing.T, root *string, path, outside string) *puppet {
	return &puppet{id: "sess_alpha", facts: story(t), quiesce: func(_ context.Context, n int) string {
		if n == 1 {
			at := filepath.Join(*root, path)
			if err := errors.Join(os.RemoveAll(at), os.Symlink(outside, at)); err != nil {
				t.Error(err)
			}
		}
		return ""
	}}
}

func TestPathSwappedDuringTheDrainIsNotExported(t *testing.T) {
	var root string
	outside := folder(t)
	p := swapping(t, &root, "out", outside)
	r := runner(t, p)
	root = r.config.WorkspaceRoot
	write(t, filepath.Join(root, "out/result.txt"), "done")
	_, _, err := r.Drain(t.Context(), []byte(`{"export_paths":["out/result.txt","out"]}`))
	if !errors.Is(err, &contracts.Error{Code: contracts.CodeWorkspaceViolation}) {
		t.Errorf("got %v, want workspace_violation", err)
	}
	if got := manifests(t, r); len(got) > 0 || !r.Identity().Draining {
		t.Errorf("got manifests %q and %+v, want none and draining", got, r.Identity())
	}
	if answer := drain(t, r, `{"export_paths":["notes.md"]}`); answer.Status != contracts.Drained {
		t.Errorf("got %s, want drained", answer.Status)
	}
}

func TestPathRemovedDuringTheDrainIsListedAsMissing(t *testing.T) {
	var root string
	p := swapping(t, &root, "out", "missing-in-workspace")
	r := runner(t, p)
	root = r.config.WorkspaceRoot
	write(t, filepath.Join(root, "out/result.txt"), "done")
	answer := drain(t, r, `{"export_paths":["out/result.txt"]}`)
	want := []contracts.ExportPath{{
		Input: "out/result.txt", Path: root + "/missing-in-workspace/result.txt",
		RelativePath: "missing-in-workspace/result.txt", Type: "missing",
	}}
	if got := answer.Manifest.WorkspaceExport.Paths; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestManifestIsNotWrittenThroughALinkOutOfTheWorkspace(t *testing.T) {
	var root string
	outside := folder(t)
	p := swapping(t, &root, ".maestro", outside)
	r := runner(t, p)
	root = r.config.WorkspaceRoot
	if _, _, err := r.Drain(t.Context(), nil); !errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeFailed}) {
		t.Errorf("got %v, want runtime_failed", err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("got %v, %v outside the workspace, want nothing", entries, err)
	}
}

func TestManifestLiesInTheSnapshotRoot(t *testing.T) { // A101
	for id, want := range map[string]string{
		"mrs_41": `^mrs_41-`, "../x": `^___x-`, "a/b.c": `^a_b_c-`, "ä\x00 ": `^___-`, strings.Repeat("x", 500): `^x{120}-`,
	} {
		p := &puppet{id: "sess_alpha"}
		c := configured(t)
		c.RunnerSessionID = id
		r, err := New(Options{Config: c, Session: p})
		if err != nil {
			t.Fatal(err)
		}
		answer := drain(t, r, "")
		r.Close()
		names := manifests(t, r)
		pattern := want + `\d{4}-\d\d-\d\dT\d\d_\d\d_\d\d_\d{3}Z-\d{6}\.json$`
		if len(names) != 1 || !regexp.MustCompile(pattern).MatchString(names[0]) || answer.ManifestPath != filepath.Join(r.config.SnapshotRoot, names[0]) {
			t.Errorf("%q: got %q and %s, want one name like %s", id, names, answer.ManifestPath, pattern)
		}
		info, err := os.Stat(answer.ManifestPath)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%q: got %v, %v; want a file that nobody else reads", id, info, err)
		}
	}
}

func TestSessionWithAPastIsNotSkipped(t *testing.T) {
	for _, tt := range []struct {
		restored *contracts.Restored
		want     contracts.FlushStatus
	}{
		{nil, contracts.FlushSkipped},
		{&contracts.Restored{Ready: true, Cursor: 42}, contracts.FlushCompleted},
		{&contracts.Restored{Ready: false, Cursor: 42}, contracts.FlushSkipped},
	} {
		r, err := New(Options{Config: configured(t), Session: &puppet{id: "sess_alpha", facts: contracts.Quiesced{Cursor: 42}}, Restored: tt.restored})
		if err != nil {
			t.Fatal(err)
		}
		if got := drain(t, r, "").Manifest.Runtime.FlushStatus; got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.restored, got, tt.want)
		}
		r.Close()
	}
}

func TestSessionThatBreaksItsPromiseLeavesNoManifest(t *testing.T) {
	p := &puppet{id: "sess_alpha", silent: true}
	r := runner(t, p)
	if _, _, err := r.Drain(t.Context(), nil); !errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeFailed}) {
		t.Errorf("got %v, want runtime_failed", err)
	}
	if got := manifests(t, r); len(got) > 0 {
		t.Errorf("got %q, want nothing", got)
	}
}

func TestLongFlushErrorIsCut(t *testing.T) {
	p := &puppet{id: "sess_alpha", quiesce: func(context.Context, int) string { return strings.Repeat("ü", 100_000) }}
	if got := len(drain(t, runner(t, p), "").Manifest.Runtime.Error); got != 4<<10 {
		t.Errorf("got %d bytes, want %d", got, 4<<10)
	}
}

func TestWorkspaceThatIsGoneCannotBeDrained(t *testing.T) {
	p := &puppet{id: "sess_alpha"}
	r := runner(t, p)
	if err := os.RemoveAll(r.config.WorkspaceRoot); err != nil {
		t.Fatal(err)
	}
	if id := r.Identity(); id.Ready || id.Draining {
		t.Errorf("got %+v, want neither ready nor draining", id)
	}
	if _, _, err := r.Drain(t.Context(), nil); !errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeNotReady}) {
		t.Errorf("got %v, want runtime_not_ready", err)
	}
	if id := r.Identity(); id.Draining || len(p.reasons) > 0 {
		t.Errorf("got %+v and %d attempts, want nothing changed", id, len(p.reasons))
	}
}

func TestClosedRunnerStartsNoDrain(t *testing.T) {
	r := runner(t, &puppet{id: "sess_alpha"})
	r.Close()
	if _, _, err := r.Drain(t.Context(), nil); !errors.Is(err, &contracts.Error{Code: contracts.CodeGoingAway}) {
		t.Errorf("got %v, want going_away", err)
	}
}
