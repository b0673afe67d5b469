package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strconv"
)

// maxChunkHead is more than the head of any chunk that servers here send.
const maxChunkHead = 32

var errBodyEnded = errors.New("server ended the stream")

// parseChunk returns the size that the head of a chunk says (RFC 9112, 7.1). To
// the head of every chunk but the first belongs the line break that ends the
// chunk before. It reports false if head is not all of it yet, and fails at the
// chunk that ends a body: streams have no end.
func parseChunk(head []byte, first bool) (size uint64, ok bool, err error) {
	line := head
	if !first {
		n := min(len(line), 2)
		if string(line[:n]) != "\r\n"[:n] {
			return 0, false, errors.New("chunk does not end where its size says")
		}
		line = line[n:]
	}
	line, whole := bytes.CutSuffix(line, []byte("\r\n"))
	if !whole {
		if len(head) >= maxChunkHead {
			return 0, false, fmt.Errorf("head of a chunk is too long: %q", head)
		}
		return 0, false, nil
	}
	digits, _, _ := bytes.Cut(line, []byte(";")) // extensions mean nothing to us
	size, err = strconv.ParseUint(string(digits), 16, 64)
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("not the size of a chunk: %q", line)
	case size == 0:
		return 0, false, errBodyEnded
	}
	return size, true, nil
}

// unchunk returns what the chunks in raw, the start of a body, hold so far.
func unchunk(raw []byte) (body []byte, err error) {
	switch body, err = io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(raw))); err {
	case nil:
		return nil, errBodyEnded
	case io.ErrUnexpectedEOF: // more is to come
		return body, nil
	}
	return nil, err
}
