//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// approvals is what an attendee can answer that needs to answer nothing else.
var approvals = []contracts.RequestType{contracts.RequestApproval}

// killed ends a server as a machine would that lost its power.
func (r *running) killed() {
	r.t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	_ = r.cmd.Wait() // says that it was killed
}

func TestAnAnswerThatTheServerDiedInIsRemembered(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{"llm:anthropic/local", "llm:openai/local", "llm:openai-chat/local"} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			m, url := modelServer(t, localmodel.Options{})
			args := []string{"--agent", agent, "--model-url", url, "--workspace", t.TempDir(), "--state-dir", t.TempDir()}
			r := serving(t, args...)
			f := r.attend("before", contracts.RoleController, approvals)
			f.prompts("say The first word is heliotrope.")
			f.says("heliotrope")
			f.prompts("say The second word is chartreuse, and there is much more to be said about it than this.\nfault hang")
			f.await("half of the answer", func(contracts.Event) bool { return strings.Contains(f.said.String(), "The second") })
			r.killed()

			r = serving(t, args...)
			f = r.attend("after", contracts.RoleController, approvals, client.WithHistory())
			f.await("the half that was shown", func(contracts.Event) bool { return strings.Contains(f.said.String(), "The second") })
			f.takes() // the connection that is gone still counts for a while
			f.prompts("Which words were there?")
			f.says("Which words were there?")
			for _, want := range []string{"The first word is heliotrope.", "say The second word", "The second", "Which words were there?"} {
				if body := lastBody(t, m); !strings.Contains(body, want) {
					t.Errorf("got %s, want %q in it", body, want)
				}
			}
			checkEnds(f)
		})
	}
}

func TestAQuestionThatTheServerDiedInIsAnsweredLater(t *testing.T) {
	t.Parallel()
	m, url := modelServer(t, localmodel.Options{})
	workspace := t.TempDir()
	args := []string{"--agent", "llm:anthropic/local", "--model-url", url, "--workspace", workspace, "--state-dir", t.TempDir()}
	r := serving(t, args...)
	f := r.attend("before", contracts.RoleController, approvals)
	f.prompts("call bash {\"command\":\"echo once >>runs.txt; echo resumed\"}")
	question := f.asked()
	r.killed()

	r = serving(t, args...)
	f = r.attend("after", contracts.RoleController, approvals, client.WithHistory())
	if again := f.asked(); again.RequestID != question.RequestID {
		t.Fatalf("got the question %s, want %s", again.RequestID, question.RequestID)
	}
	f.takes() // the connection that is gone still counts for a while
	if _, err := f.Approve(t.Context(), question.RequestID, ""); err != nil {
		t.Fatal(err)
	}
	f.says("resumed")
	if text, err := os.ReadFile(filepath.Join(workspace, "runs.txt")); err != nil || string(text) != "once\n" {
		t.Errorf("got %q, %v, want that the command ran once", text, err)
	}
	f.prompts("hello again")
	f.says("hello again")
	if body := lastBody(t, m); !strings.Contains(body, "resumed") {
		t.Errorf("got %s, want the result of the call", body)
	}
	checkEnds(f)
}

// Failures of the model are told with their type, and the session goes on.
func TestFailuresOfTheModelAreTold(t *testing.T) {
	t.Parallel()
	_, url := modelServer(t, localmodel.Options{})
	r := serving(t, "--agent", "llm:openai/local", "--model-url", url)
	f := r.attend("only", contracts.RoleController, approvals)
	for kind, want := range map[localmodel.FaultKind]contracts.ErrorType{
		localmodel.FaultUnauthorized: contracts.ErrorFatal, localmodel.FaultNoQuota: contracts.ErrorFatal,
	} {
		f.prompts("say hello\nfault " + string(kind))
		if failed := f.fails(); failed.ErrorType != want || failed.Fatal {
			t.Errorf("%s: got %+v, want an error of type %s and the session alive", kind, failed, want)
		}
		f.prompts("after " + string(kind))
		f.says("after " + string(kind))
	}
	for _, kind := range []localmodel.FaultKind{localmodel.FaultOverloaded, localmodel.FaultServerError, localmodel.FaultHTML} {
		f.prompts("say an answer after " + string(kind) + "\nfault " + string(kind))
		f.status("Trying again")
		f.says("an answer after " + string(kind))
	}
	f.prompts("say this is cut in the middle of its answer\nfault cut_text")
	f.status("Trying again")
	f.says("Continue exactly where it stopped") // which this model says back
	f.prompts("say this hangs in the middle of its answer\nfault hang")
	f.await("half of the answer", func(contracts.Event) bool { return strings.Contains(f.said.String(), "this h") })
	f.interrupts()
	f.prompts("say and goes on")
	f.says("and goes on")
	checkEnds(f)
}

// The keys of providers are told to them and shown nowhere.
func TestKeysOfProvidersStayWhereTheyBelong(t *testing.T) {
	const key = "sk-ant-sentinel-5e77aa01"
	t.Setenv("ANTHROPIC_API_KEY", key)
	t.Setenv("OPENAI_API_KEY", key+"-openai")
	var got, repeats atomic.Bool
	m := localmodel.New(localmodel.Options{})
	url := webServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(got.Load() || r.Header.Get("X-Api-Key") == key)
		if repeats.Load() {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":"authentication_error","message":"the key %s is not known"}}`, key)
			return
		}
		m.ServeHTTP(w, r)
	}))
	r := serving(t, "--agent", "llm:anthropic/local", "--model-url", url, "--allow", "bash", "--log-level", "debug")
	l := &lookout{t: t, r: r, secrets: map[string]string{"key": key}}
	token, err := os.ReadFile(r.ready.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	f := r.attend("only", contracts.RoleController, approvals)
	f.prompts("call bash {\"command\":\"echo done-with-it; env\"}") // the model repeats the beginning
	f.says("done-with-it")
	repeats.Store(true) // as some services do
	f.prompts("hello")
	if failed := f.fails(); !strings.Contains(failed.Message, "is not known") {
		t.Errorf("got %+v, want what the service said", failed)
	}
	repeats.Store(false)
	f.prompts("and again")
	f.says("and again")
	if !got.Load() {
		t.Error("the key was not sent to the provider")
	}
	if shown := f.told(); !strings.Contains(shown, "PATH=") {
		t.Errorf("got %s, want the environment of a command", shown)
	}
	l.find("events", []byte(f.told()))
	for _, path := range []string{"/api/headless/sessions", "/api/headless/sessions/main/state", "/metrics"} {
		l.request("GET", path, strings.TrimSpace(string(token)), "", false)
	}
	l.find("answers", l.seen.Bytes())
	bodies, err := json.Marshal(m.Requests())
	if err != nil {
		t.Fatal(err)
	}
	l.find("requests", bodies)
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	r.ends(130)
	l.find("log", r.log.Bytes())
	l.findInFiles(filepath.Dir(r.ready.TokenFile))
}
