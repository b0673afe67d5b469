package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/console"
)

// log returns the logger that --log-level and --log-format describe.
func (s *settings) log() *slog.Logger {
	level := slog.LevelInfo
	if s.logLevel != "" {
		_ = level.UnmarshalText([]byte(s.logLevel)) // sensible has checked it
	} else if s.child || s.logFormat != "json" && console.IsTerminal(os.Stderr) {
		level = slog.LevelWarn // people who read it see clients and questions elsewhere
	}
	w := standardError()
	opts := &slog.HandlerOptions{Level: level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	if w.journald {
		opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey { // journald has a time of its own
				return slog.Attr{}
			}
			return a
		}
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// standardError returns the one writer of log lines. The first call starts it.
var standardError = sync.OnceValue(func() *logWriter { return newLogWriter(os.Stderr, readByJournald(os.Stderr)) })

// readByJournald reports whether journald reads what is written to f. A child process
// inherits JOURNAL_STREAM also if its standard error is a terminal, a pipe or a file, but
// only that of journald is a socket.
func readByJournald(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeSocket != 0 && os.Getenv("JOURNAL_STREAM") != ""
}

// A logWriter writes log lines from a goroutine of its own, so that callers do not wait for
// a terminal or a pipe that does not take them. At most maxWaitingLines lines wait.
// Further lines are dropped, and the next line that is queued says how many. Several
// goroutines may use it.
type logWriter struct {
	out      io.Writer
	journald bool         // lines of text begin with a priority
	lines    chan logLine // never closed

	mu      sync.Mutex
	dropped int // since the last line that was queued
}

// A logLine is a line to write, or a request to say that all before it are written.
type logLine struct {
	text    []byte
	written chan struct{}
}

const (
	maxWaitingLines = 4096
	flushPatience   = time.Second
)

func newLogWriter(out io.Writer, journald bool) *logWriter {
	w := &logWriter{out: out, journald: journald, lines: make(chan logLine, maxWaitingLines)}
	go func() { // ends with the process
		for line := range w.lines {
			_, _ = w.out.Write(line.text) // there is nowhere else to report a failure
			if line.written != nil {
				close(line.written)
			}
		}
	}()
	return w
}

// Write queues a line. It never fails.
func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.priority(line), line...)
	if w.dropped > 0 {
		lost := fmt.Appendf(nil, "level=WARN msg=\"log lines lost\" lines=%d\n", w.dropped)
		if line[0] == '{' {
			lost = fmt.Appendf(nil, "{\"level\":\"WARN\",\"msg\":\"log lines lost\",\"lines\":%d}\n", w.dropped)
		}
		text = append(append(text, w.priority(lost)...), lost...)
	}
	select {
	case w.lines <- logLine{text: text}:
		w.dropped = 0
	default:
		w.dropped++
	}
	return len(line), nil
}

// flush waits until all lines are written, flushPatience at most.
func (w *logWriter) flush() {
	timeout := time.After(flushPatience)
	written := make(chan struct{})
	select {
	case w.lines <- logLine{written: written}:
	case <-timeout:
		return
	}
	select {
	case <-written:
	case <-timeout:
	}
}

// priority returns the priority that journald reads at the beginning of a line of text,
// see sd-daemon(3). It returns nil for a line of JSON.
func (w *logWriter) priority(line []byte) []byte {
	if !w.journald || line[0] == '{' {
		return nil
	}
	level, _, _ := bytes.Cut(bytes.TrimPrefix(line, []byte("level=")), []byte(" "))
	switch string(level) {
	case "ERROR":
		return []byte("<3>")
	case "WARN":
		return []byte("<4>")
	case "DEBUG":
		return []byte("<7>")
	}
	return []byte("<6>")
}
