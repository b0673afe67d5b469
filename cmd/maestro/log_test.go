package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestLogNeverWaitsForItsReader(t *testing.T) {
	in, out := io.Pipe() // nobody reads
	w := newLogWriter(out, false)
	line := "level=INFO msg=x\n"
	const more = 10
	for range 1 + maxWaitingLines + more { // the goroutine holds one line
		if n, err := io.WriteString(w, line); n != len(line) || err != nil {
			t.Fatalf("got %d, %v", n, err)
		}
	}
	lines := bufio.NewScanner(in)
	for i := range maxWaitingLines {
		if !lines.Scan() || lines.Text()+"\n" != line {
			t.Fatalf("line %d: got %q", i, lines.Text())
		}
	}
	go func() { // ends when the line is written, at the latest with the pipe
		fmt.Fprintln(w, `level=ERROR msg=y`)
		w.flush()
		out.Close()
	}()
	rest, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	// The scanner may have read ahead, and the goroutine may have taken a line more.
	if text := string(rest); !strings.Contains(text, "level=ERROR msg=y\nlevel=WARN msg=\"log lines lost\" lines=1") {
		t.Errorf("got %q, want the number of lost lines after the next line", text)
	}
}

func TestLogLinesHavePrioritiesForJournald(t *testing.T) {
	var out bytes.Buffer
	w := newLogWriter(&out, true)
	for _, level := range []string{"DEBUG", "INFO", "WARN", "ERROR"} {
		fmt.Fprintf(w, "level=%s msg=x\n", level)
	}
	fmt.Fprintln(w, `{"level":"ERROR","msg":"x"}`)
	w.flush()
	if got, want := out.String(), "<7>level=DEBUG msg=x\n<6>level=INFO msg=x\n<4>level=WARN msg=x\n<3>level=ERROR msg=x\n{\"level\":\"ERROR\",\"msg\":\"x\"}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// logged returns the lines of a JSON log by their messages.
func logged(t *testing.T, log []byte) map[string][]map[string]any {
	t.Helper()
	lines := map[string][]map[string]any{}
	for line := range bytes.Lines(log) {
		var facts map[string]any
		if err := json.Unmarshal(line, &facts); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		msg := facts["msg"].(string)
		lines[msg] = append(lines[msg], facts)
	}
	return lines
}
