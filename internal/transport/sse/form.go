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

const end = "}\n\n" // of an event

// AppendOpening appends the delay after which a client reconnects: 2,000 ms.
func (Form) AppendOpening(dst []byte) []byte { return append(dst, "retry: 2000\n\n"...) }

// AppendMessage appends a message envelope around body.
func (f Form) AppendMessage(dst []byte, cursor uint64, body []byte) []byte {
	dst = append(f.appendID(dst, cursor), `{"type":"message","cursor":`...)
	dst = append(strconv.AppendUint(dst, cursor, 10), `,"message":`...)
	return append(append(dst, body...), end...)
}

// AppendSnapshot appends a snapshot envelope around body, which contains the
// cursor.
func (f Form) AppendSnapshot(dst []byte, cursor uint64, body []byte) []byte {
	dst = append(f.appendID(dst, cursor), `{"type":"snapshot","snapshot":`...)
	return append(append(dst, body...), end...)
}

// AppendReset appends a reset envelope around body, which contains the cursor.
func (f Form) AppendReset(dst []byte, cursor uint64, reason contracts.ResetReason, body []byte) []byte {
	dst = append(f.appendID(dst, cursor), `{"type":"reset","reason":"`...)
	dst = append(append(dst, reason...), `","snapshot":`...)
	return append(append(dst, body...), end...)
}

// AppendHeartbeat appends a heartbeat envelope, which has no id. If quiet, it
// appends a comment instead, which keeps proxies from closing the connection.
func (Form) AppendHeartbeat(dst []byte, cursor uint64, quiet bool) []byte {
	if quiet {
		return append(dst, ": ka\n\n"...)
	}
	dst = append(dst, `data: {"type":"heartbeat","cursor":`...)
	return append(strconv.AppendUint(dst, cursor, 10), end...)
}

// AppendHistory appends text, which is a whole envelope, without an id: a page of the
// history does not move the cursor.
func (Form) AppendHistory(dst, text []byte) []byte {
	return AppendData(dst, text)
}

// AppendControl appends nothing: streams have no control frames.
func (Form) AppendControl(dst, _ []byte) []byte { return dst }

// AppendData appends an event without an id that has a JSON text.
func AppendData(dst, text []byte) []byte {
	return append(append(append(dst, "data: "...), text...), end[1:]...)
}

// appendID appends the id of an event and the start of its data.
func (f Form) appendID(dst []byte, cursor uint64) []byte {
	dst = append(append(dst, "id: "...), f.Epoch...)
	return append(strconv.AppendUint(append(dst, '.'), cursor, 10), "\ndata: "...)
}

// ParseID parses the Last-Event-ID of a client. It returns false for any text
// but <epoch>.<cursor>.
func ParseID(id string) (epoch string, cursor int64, ok bool) {
	dot := strings.LastIndexByte(id, '.')
	digits := id[dot+1:]
	cursor, err := strconv.ParseInt(digits, 10, 64)
	// One number has one spelling: no sign and no leading zeros.
	if dot < 1 || dot > contracts.MaxIDBytes || err != nil || cursor < 0 || strconv.FormatInt(cursor, 10) != digits {
		return "", 0, false
	}
	return id[:dot], cursor, true
}
