package hub_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// faulty is a connection with a bug, which bites once armed.
type faulty struct {
	*memconn.Conn
	mu             sync.Mutex
	reading, write bool
}

func (f *faulty) arm(reading, write bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading, f.write = reading, write
}

func (f *faulty) ReadFrame() ([]byte, error) {
	text, err := f.Conn.ReadFrame()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reading {
		panic("bug while reading")
	}
	return text, err
}

func (f *faulty) Write(frames []byte) error {
	f.mu.Lock()
	write := f.write
	f.mu.Unlock()
	if write {
		panic("bug while writing")
	}
	return f.Conn.Write(frames)
}

func TestPanicInOneConnectionEndsOnlyIt(t *testing.T) {
	for _, tt := range []struct {
		name    string
		early   bool // during the handshake
		reading bool
		writing bool
		freeze  bool // a write is blocked meanwhile
	}{
		{name: "reading", reading: true},
		{name: "reading while a write is blocked", reading: true, freeze: true},
		{name: "writing", writing: true},
		{name: "reading in the handshake", early: true, reading: true},
		{name: "writing in the handshake", early: true, writing: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := &logged{}
			withSoloist(t, hub.Options{Log: log.logger()}, func(t *testing.T, s *soloist) {
				other, _ := s.attach(contracts.Attach{Role: contracts.RoleController})
				s.until(other, `"hello_ok"`)
				conn, peer := memconn.New(memconn.Options{})
				bad := &faulty{Conn: conn}
				if tt.early {
					bad.arm(tt.reading, tt.writing)
				}
				served := make(chan error, 1)
				go func() { // ends with its panic
					served <- s.Serve(context.Background(), bad, hub.WireEnvelope, &contracts.Attach{Role: contracts.RoleViewer})
				}()
				s.send(peer, `{"type":"hello"}`)
				if !tt.early {
					s.until(peer, `"hello_ok"`)
					synctest.Wait()
					bad.arm(tt.reading, tt.writing)
				}
				if tt.freeze {
					peer.Freeze()
					s.begin()
					synctest.Wait()
				}
				_ = peer.Send(`{"type":"ws.ping"}`) // it may be gone already
				began := time.Now()
				<-served
				if took := time.Since(began); took != 0 {
					t.Errorf("got %v until it was over, want at once", took)
				}
				peer.Thaw()
				if why, closed := peer.Closed(); !closed || why == nil || why.Code != contracts.CodeInternal {
					t.Errorf("got %v, %t, want closed with internal_error", why, closed)
				}
				log.wants(t, "panic_test.go") // the stack says where
				s.send(other, `{"type":"ws.send","id":"1","message":{"type":"init"}}`)
				s.until(other, `"ws.result","id":"1"`)
			})
		})
	}
}

func TestLocalConnectionThatPanicsEndsInOrder(t *testing.T) {
	withSoloist(t, hub.Options{}, func(t *testing.T, s *soloist) {
		conn, peer := memconn.New(memconn.Options{Bare: true})
		bad := &faulty{Conn: conn}
		served := make(chan error, 1)
		go func() { served <- s.Serve(context.Background(), bad, hub.WireBare, &contracts.Attach{}) }() // ends with its panic
		s.until(peer, `"session_info"`)
		synctest.Wait()
		bad.arm(true, false)
		_ = peer.Send(`{"type":"hello"}`)
		wantCode(t, <-served, contracts.CodeInternal)
		<-s.Done()
	})
}
