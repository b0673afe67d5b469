package client

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestOptionsHaveDefaults(t *testing.T) {
	c := newConfig([]Option{nil})
	if c.hello.Role != contracts.RoleViewer || c.hello.ProtocolVersion != contracts.ProtocolVersion || c.hello.ClientInfo.Name != "maestro-go-client" {
		t.Errorf("got hello %+v, want a viewer of the current version, named as the library", c.hello)
	}
	if c.reconnect.First != 250*time.Millisecond || c.reconnect.Max != 10*time.Second || c.buffer != defaultBuffer || c.log == nil {
		t.Errorf("got %+v, want 250 ms to 10 s, the default buffer and a logger", c)
	}
	c = newConfig([]Option{WithHello(contracts.Hello{Role: contracts.RoleController, ProtocolVersion: "v", ClientInfo: &contracts.ClientInfo{Name: "n"}}),
		WithReconnect(Reconnect{First: time.Minute, Max: time.Second})})
	if c.hello.Role != contracts.RoleController || c.hello.ProtocolVersion != "v" || c.hello.ClientInfo.Name != "n" {
		t.Errorf("got hello %+v, want what was given", c.hello)
	}
	if c := newConfig([]Option{WithRole(contracts.RoleController), WithHello(contracts.Hello{}), WithBuffer(7)}); c.hello.Role != contracts.RoleController || c.buffer != 7 {
		t.Errorf("got role %q and buffer %d, want the controller of WithRole and 7", c.hello.Role, c.buffer)
	}
	if c.reconnect.First != time.Minute || c.reconnect.Max != time.Minute {
		t.Errorf("got %+v, want no maximum below the first", c.reconnect)
	}
}

func TestDialerTakesTheWholeRoute(t *testing.T) {
	c := newConfig(nil)
	if c.transport().Proxy == nil {
		t.Error("got no proxy, want that of the environment")
	}
	c = newConfig([]Option{WithDialer(func(context.Context) (net.Conn, error) { return nil, os.ErrClosed })})
	if c.transport().Proxy != nil {
		t.Error("got a proxy beside a dialer, want none")
	}
}

func TestPeopleAreAskedForBesideOtherCapabilities(t *testing.T) {
	caps := &contracts.Capabilities{RawAgentEvents: true}
	c := newConfig([]Option{WithHello(contracts.Hello{Capabilities: caps}), WithPeople("Ann")})
	if got := c.hello; got.DisplayName != "Ann" || !got.Capabilities.People || !got.Capabilities.RawAgentEvents || caps.People {
		t.Errorf("got %+v and %+v, want people asked for, and nothing of the caller changed", got, got.Capabilities)
	}
	if c := newConfig([]Option{WithPeople("")}); !c.hello.Capabilities.People || c.hello.DisplayName != "" {
		t.Errorf("got %+v", c.hello)
	}
}

func TestTokenFileIsReadAgainForEachConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	c := &config{tokenFile: path}
	if got, err := c.credential(); err == nil {
		t.Errorf("got %q without a file, want an error", got)
	}
	for _, tt := range []struct{ text, want string }{{"", ""}, {" one\n", "one"}, {"\n", "one"}, {"two", "two"}} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.credential(); got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("file %q: got %q, %v, want %q", tt.text, got, err, tt.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, err := c.credential(); got != "two" || err != nil {
		t.Errorf("got %q, %v after the file is gone, want the last token", got, err)
	}
	if got, err := (&config{token: "given"}).credential(); got != "given" || err != nil {
		t.Errorf("got %q, %v, want the given token", got, err)
	}
}

func TestDelaysDoubleAndAreShortenedByUpToHalf(t *testing.T) {
	for _, tt := range []struct {
		jitter float64
		floor  time.Duration
		want   []time.Duration
	}{
		{0, 0, []time.Duration{2 * time.Second, 4 * time.Second, 7 * time.Second, 7 * time.Second}},
		{0.5, 0, []time.Duration{1500 * time.Millisecond, 3 * time.Second, 5250 * time.Millisecond}},
		{1, 0, []time.Duration{time.Second, 2 * time.Second, 3500 * time.Millisecond}},
		{1, 3 * time.Second, []time.Duration{3 * time.Second, 3 * time.Second, 3500 * time.Millisecond}},
	} {
		a := attempts{policy: Reconnect{First: 2 * time.Second, Max: 7 * time.Second, Attempts: len(tt.want)}, jitter: func() float64 { return tt.jitter }}
		for i, want := range tt.want {
			if got, ok := a.next(tt.floor); got != want || !ok {
				t.Errorf("jitter %v, floor %v, failure %d: got %v, %t, want %v", tt.jitter, tt.floor, i+1, got, ok, want)
			}
		}
		if got, ok := a.next(0); ok {
			t.Errorf("got %v after the last attempt, want none", got)
		}
	}
}
