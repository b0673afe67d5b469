package hub_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
)

// requests are everything that a caller does in the name of a connection. Each
// ends a connection or a subscription at most once, so they come in an order.
var requests = []struct {
	name string
	do   func(r *room, by contracts.Caller) error
}{
	{"send", func(r *room, by contracts.Caller) error {
		_, err := r.Send([]byte(`{"type":"init"}`), "", by)
		return err
	}},
	{"heartbeat", func(r *room, by contracts.Caller) error { _, err := r.Heartbeat(by); return err }},
	{"connect", func(r *room, by contracts.Caller) error {
		_, _, err := r.Connect(&contracts.AttachRequest{ConnectionID: by.ConnectionID}, by)
		return err
	}},
	{"subscribe", func(r *room, by contracts.Caller) error {
		_, _, err := r.Subscribe(&contracts.AttachRequest{ConnectionID: by.ConnectionID}, by)
		return err
	}},
	{"stream", func(r *room, by contracts.Caller) error {
		req := contracts.StreamRequest{SubscriptionID: by.SubscriptionID}
		if err := r.MayStream(req, by); err != nil {
			return err
		}
		g := guest{r, by}
		peer, ended := g.streams(req)
		r.arrived(peer)
		peer.Close()
		return <-ended
	}},
	{"unsubscribe", func(r *room, by contracts.Caller) error { return r.Unsubscribe(by.SubscriptionID, by) }},
	{"disconnect", func(r *room, by contracts.Caller) error { _, err := r.Disconnect(by); return err }},
}

// unfound is the code with which a request is refused whose connection or
// subscription is not the caller's.
func unfound(name string) contracts.Code {
	if name == "stream" || name == "unsubscribe" {
		return contracts.CodeStaleSubscription
	}
	return contracts.CodeStaleConnection
}

func TestSecretOfAConnectionIsRequiredOrOptional(t *testing.T) { // A40
	for _, tt := range []struct {
		name     string
		required bool
		token    func(right string) string
		good     bool
	}{
		{"required and right", true, func(right string) string { return right }, true},
		{"required and wrong", true, func(string) string { return "guessed" }, false},
		{"required and absent", true, func(string) string { return "" }, false},
		{"optional and right", false, func(right string) string { return right }, true},
		{"optional and wrong", false, func(string) string { return "guessed" }, false},
		{"optional and absent", false, func(string) string { return "" }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inRoom(t, hub.Options{RequireTokens: tt.required}, func(t *testing.T, r *room) {
				alice := r.guest("a")
				alice.subscribes(asController)
				id, sub := alice.by.ConnectionID, alice.by.SubscriptionID
				alice.subscribes(asController) // so that unsubscribing once leaves the connection
				by := alice.by
				by.ConnectionID, by.SubscriptionID, by.Token = id, sub, tt.token(by.Token)
				before := r.Cursor()
				for _, req := range requests {
					err := req.do(r, by)
					if req.name == "unsubscribe" {
						by.SubscriptionID = ""
					}
					if tt.good && err != nil {
						t.Errorf("%s: got %v, want it done", req.name, err)
					} else if !tt.good {
						wantCode(t, err, unfound(req.name))
					}
				}
				if !tt.good && r.Cursor() != before {
					t.Errorf("got cursor %d, want nothing done since %d", r.Cursor(), before)
				}
				if there := r.entry(id) != nil; there == tt.good {
					t.Errorf("connection there: got %t, want %t", there, !tt.good)
				}
			})
		})
	}
}

// Connection ids are shown to everybody. With secrets required that helps
// nobody.
func TestViewerCannotSpeakAsTheController(t *testing.T) { // A39, A40
	inRoom(t, hub.Options{RequireTokens: true}, func(t *testing.T, r *room) {
		alice, mallory := r.guest("shared key"), r.guest("shared key")
		alice.subscribes(asController)
		got := mallory.subscribes(asViewer)
		mallory.by.ConnectionID, mallory.by.SubscriptionID = *got.ControllerConnectionID, ""
		_, err := r.Send([]byte(`{"type":"interrupt"}`), "", mallory.by)
		wantCode(t, err, contracts.CodeStaleConnection)
		_, err = r.Disconnect(mallory.by)
		wantCode(t, err, contracts.CodeStaleConnection)
		alice.beats()
	})
}

func TestAdoptionNeedsTheSecretIfSecretsAreRequired(t *testing.T) {
	inRoom(t, hub.Options{RequireTokens: true}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		made := alice.connects(asController).ConnectionID
		_, _, err := r.Subscribe(&contracts.AttachRequest{}, r.guest("a").by)
		wantCode(t, err, contracts.CodeControllerLeaseHeld)
		by := r.guest("a").by
		by.Token = alice.by.Token
		got, _, err := r.Subscribe(&contracts.AttachRequest{}, by)
		if err != nil || got.ConnectionID != made {
			t.Errorf("got %+v, %v, want %s adopted", got, err, made)
		}
	})
}

// A connection made over HTTP can be continued on a socket, and the other way
// round: it has one secret.
func TestConnectionIsTheSameOnEveryTransport(t *testing.T) {
	inRoom(t, hub.Options{RequireTokens: true}, func(t *testing.T, r *room) {
		alice := r.guest("")
		alice.subscribes(asController)
		att, first := comeBack(contracts.Attached{Role: contracts.RoleController, ConnectionID: alice.by.ConnectionID, ConnectionToken: alice.by.Token})
		peer, told := r.attach(att, first...)
		if told.ConnectionID != alice.by.ConnectionID || told.SubscriptionID != alice.by.SubscriptionID || !told.ControllerLeaseGranted {
			t.Errorf("got %+v, want connection %s with its lease", told, alice.by.ConnectionID)
		}
		r.until(peer, `"hello_ok"`)
		alice.posts(`{"type":"init"}`) // beside the socket
		r.until(peer, `"status"`)
		stream := alice.follows(alice.place(-1)) // takes the place of the socket
		r.wantEnd(peer, contracts.CodeSuperseded)
		alice.posts(`{"type":"init"}`)
		r.until(stream, `"status"`)
		if n := r.Snapshot().State.ConnectionCount; n != 1 {
			t.Errorf("connections: got %d, want 1", n)
		}
	})
}

// TestMissingSecretIsNamed tells a client that knows no secrets what it lacks,
// and its operator, once. Nobody else learns that the connection exists.
func TestMissingSecretIsNamed(t *testing.T) {
	var log bytes.Buffer
	opts := hub.Options{RequireTokens: true, Log: slog.New(slog.NewTextHandler(&log, nil))}
	inRoom(t, opts, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		for _, req := range requests {
			for name, tt := range map[string]struct {
				change func(by *contracts.Caller)
				want   string
			}{
				"absent":             {func(by *contracts.Caller) { by.Token = "" }, contracts.HeaderConnectionToken},
				"wrong":              {func(by *contracts.Caller) { by.Token = "guessed" }, ""},
				"somebody else":      {func(by *contracts.Caller) { by.Token, by.Principal.ID = "", "m" }, ""},
				"unknown connection": {func(by *contracts.Caller) { by.Token, by.ConnectionID, by.SubscriptionID = "", "conn_x", "sub_x" }, ""},
			} {
				by := alice.by
				tt.change(&by)
				refusal, ok := errors.AsType[*contracts.Error](req.do(r, by))
				if !ok || refusal.Code.HTTPStatus() != 404 || refusal.Metadata["missing"] != tt.want {
					t.Errorf("%s, %s: got %+v, want 404 and %q missing", req.name, name, refusal, tt.want)
				}
			}
		}
		by := alice.by
		by.Token, by.ConnectionID = "", ""
		_, err := r.Send([]byte(`{"type":"interrupt"}`), "", by)
		if refusal, ok := errors.AsType[*contracts.Error](err); !ok || refusal.Code != contracts.CodeStaleSubscription || refusal.Metadata["missing"] == "" {
			t.Errorf("a subscription alone: got %v, want to be told what is missing", err)
		}
		if got := strings.Count(log.String(), contracts.HeaderConnectionToken); got != 1 || !strings.Contains(log.String(), "--connection-tokens optional") {
			t.Errorf("got the log\n%s\nwant one line", log.String())
		}
	})
}
