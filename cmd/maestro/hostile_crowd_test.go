//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestCrowdOfStreamsComesBack has thousands of viewers ask for their streams at
// the same time, as they do when a server has been restarted. Each waits as long
// as it is told to.
func TestCrowdOfStreamsComesBack(t *testing.T) {
	binary := buildBinary(t)
	size := min(crowd(t), 6000)
	few := comeBack(t, serveScript(t, binary), size/6)
	many := comeBack(t, serveScript(t, binary), size)
	t.Logf("%d streams: %+v; %d streams: %+v", size/6, few, size, many)
	if many.refusals > int64(size) {
		t.Errorf("got %d refusals of %d streams, want at most one each", many.refusals, size)
	}
	if few.refusals != 0 {
		t.Errorf("got %d refusals of %d streams, want none", few.refusals, size/6)
	}
	if many.perViewer > 3*few.perViewer {
		t.Errorf("got %v of processor time for each of %d streams and %v for each of %d, want as much", many.perViewer, size, few.perViewer, size/6)
	}
}

// A return is what it took for a crowd to come back.
type comeback struct {
	refusals  int64
	took      time.Duration
	perViewer time.Duration // processor time of the server
}

// comeBack opens so many streams, all at once.
func comeBack(t *testing.T, v victim, size int) (c comeback) {
	t.Helper()
	var refusals atomic.Int64
	open := make([]net.Conn, size)
	before, start := v.processorTime(t), time.Now()
	var wg sync.WaitGroup
	for i := range size {
		wg.Go(func() { // ends with the stream's first byte
			for {
				conn, wait, err := v.askStream(t.Context())
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
					return
				}
				if open[i] = conn; conn != nil {
					return
				}
				refusals.Add(1)
				time.Sleep(wait) // as the server said
			}
		})
	}
	wg.Wait()
	c = comeback{refusals.Load(), time.Since(start), (v.processorTime(t) - before) / time.Duration(size)}
	for _, conn := range open {
		if conn != nil {
			_ = conn.Close()
		}
	}
	return c
}

// askStream asks for a stream, and returns how long to wait if it is refused.
func (v victim) askStream(ctx context.Context) (open net.Conn, wait time.Duration, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", v.addr)
	if err != nil {
		return nil, 0, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, 0, err
	}
	_, err = io.WriteString(conn, "GET /api/headless/sessions/main/events?optOutNotifications=connection_info,status HTTP/1.1\r\nHost: "+v.addr+"\r\nConnection: close\r\n\r\n")
	if err != nil {
		return nil, 0, err
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return nil, 0, err
	}
	if res.StatusCode == http.StatusOK {
		return conn, 0, nil
	}
	defer conn.Close()
	seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if err != nil || res.StatusCode != http.StatusTooManyRequests {
		return nil, 0, fmt.Errorf("got %s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
	}
	return nil, time.Duration(seconds) * time.Second, nil
}

// processorTime returns what the server has used, in user and system time.
func (v victim) processorTime(t *testing.T) (used time.Duration) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name in brackets may have spaces
	fields := strings.Fields(rest)
	for _, ticks := range fields[11:13] { // a hundred a second
		n, err := strconv.ParseInt(ticks, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		used += time.Duration(n) * 10 * time.Millisecond
	}
	return used
}
