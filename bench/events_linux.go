package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// openEvents asks for a stream of events and reads the header of the answer and,
// if the dialect has an answer, the whole event with that in it. It returns what
// was read beyond the header.
func openEvents(conn net.Conn, addr string, d dialect) (rest []byte, err error) {
	request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", d.path, addr)
	if _, err := conn.Write(request); err != nil {
		return nil, fmt.Errorf("ask for events: %w", err)
	}
	got, end, err := readUntil(conn, nil, "\r\n\r\n")
	if err != nil {
		return nil, fmt.Errorf("read the header of the events: %w", err)
	}
	if err := checkEvents(got[:end]); err != nil {
		return nil, fmt.Errorf("%w: %q", err, got)
	}
	for rest = got[end:]; ; {
		body, err := unchunk(rest)
		if err != nil {
			return nil, fmt.Errorf("read answer %q: %w", d.answer, err)
		}
		if holdsEvent(body, d.answer) {
			return rest, nil
		}
		if rest, err = readMore(conn, rest); err != nil {
			return nil, fmt.Errorf("read answer %q: %w", d.answer, err)
		}
	}
}

// checkEvents fails if what header begins is not a chunked stream of events.
func checkEvents(header []byte) error {
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(header)), nil)
	switch {
	case err != nil:
		return err
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("events refused: %s", answer.Status)
	case !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream"):
		return fmt.Errorf("not events but %q", answer.Header.Get("Content-Type"))
	case !slices.Equal(answer.TransferEncoding, []string{"chunked"}):
		return fmt.Errorf("events are not chunked")
	}
	return nil
}

// holdsEvent reports whether body, the start of a stream, holds the whole of the
// event with the answer in it, or whether there is none to wait for.
func holdsEvent(body []byte, answer string) bool {
	_, event, found := bytes.Cut(body, []byte(answer))
	return answer == "" || found && bytes.Contains(event, []byte("\n\n"))
}
