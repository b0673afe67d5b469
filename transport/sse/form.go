package sse

import (
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// Form builds server-sent events, each with one envelope of the protocol. An
// event that moves the cursor has the id <epoch>.<cursor>, which a browser sends
// back when it reconnects. Forms of one epoch are equal. The methods allocate only
// to grow dst.
type Form struct{ Epoch string }

var _ contracts.Form = Form{}

// The envelopes in pieces.
const (
	idStart        = "id: "
	messageStart   = "\ndata: " + `{"type":"message","cursor":`
	messageMiddle  = `,"message":`
	snapshotStart  = "\ndata: " + `{"type":"snapshot","snapshot":`
	resetStart     = "\ndata: " + `{"type":"reset","reason":"`
	resetMiddle    = `","snapshot":`
	heartbeatStart = "data: " + `{"type":"heartbeat","cursor":`
	end            = "}\n\n"

	keepalive = ": ka\n\n"
	opening   = "retry: 2000\n\n" // milliseconds until a browser reconnects
)

// AppendOpening appends the delay after which a client reconnects.
func (Form) AppendOpening(dst []byte) []byte { return append(dst, opening...) }

// AppendMessage appends a message envelope around body.
func (f Form) AppendMessage(dst []byte, cursor uint64, body []byte) []byte {
	dst = f.appendID(dst, cursor)
	dst = append(dst, messageStart...)
	dst = strconv.AppendUint(dst, cursor, 10)
	dst = append(dst, messageMiddle...)
	dst = append(dst, body...)
	return append(dst, end...)
}

// AppendSnapshot appends a snapshot envelope around body, which contains the
// cursor.
func (f Form) AppendSnapshot(dst []byte, cursor uint64, body []byte) []byte {
	dst = f.appendID(dst, cursor)
	dst = append(dst, snapshotStart...)
	dst = append(dst, body...)
	return append(dst, end...)
}

// AppendReset appends a reset envelope around body, which contains the cursor.
func (f Form) AppendReset(dst []byte, cursor uint64, reason contracts.ResetReason, body []byte) []byte {
	dst = f.appendID(dst, cursor)
	dst = append(dst, resetStart...)
	dst = append(dst, reason...)
	dst = append(dst, resetMiddle...)
	dst = append(dst, body...)
	return append(dst, end...)
}

// AppendHeartbeat appends a heartbeat envelope, which has no id. If quiet, it
// appends a comment instead, which keeps proxies from closing the connection.
func (Form) AppendHeartbeat(dst []byte, cursor uint64, quiet bool) []byte {
	if quiet {
		return append(dst, keepalive...)
	}
	dst = append(dst, heartbeatStart...)
	dst = strconv.AppendUint(dst, cursor, 10)
	return append(dst, end...)
}

// AppendControl appends nothing: streams have no control frames.
func (Form) AppendControl(dst, _ []byte) []byte { return dst }

func (f Form) appendID(dst []byte, cursor uint64) []byte {
	dst = append(dst, idStart...)
	dst = append(dst, f.Epoch...)
	dst = append(dst, '.')
	return strconv.AppendUint(dst, cursor, 10)
}

// ParseID parses the Last-Event-ID of a client. It returns false for any text
// but <epoch>.<cursor>.
func ParseID(id string) (epoch string, cursor int64, ok bool) {
	dot := strings.LastIndexByte(id, '.')
	if dot < 1 || dot > contracts.MaxIDBytes || !isNumber(id[dot+1:]) {
		return "", 0, false
	}
	cursor, err := strconv.ParseInt(id[dot+1:], 10, 64)
	if err != nil {
		return "", 0, false
	}
	return id[:dot], cursor, true
}

// isNumber reports whether s is a decimal number without leading zeros.
func isNumber(s string) bool {
	return s == "0" || s != "" && s[0] != '0' && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}
