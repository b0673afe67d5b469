package foreign

import (
	"strconv"

	"github.com/seed-028515a8/maestro/contracts"
)

// form builds lines with one envelope or control frame each, for the translator. All
// forms are equal.
type form struct{}

var _ contracts.Form = form{}

func (form) AppendOpening(dst []byte) []byte { return dst }

func (form) AppendMessage(dst []byte, cursor uint64, body []byte) []byte {
	dst = strconv.AppendUint(append(dst, `{"type":"message","cursor":`...), cursor, 10)
	dst = append(append(dst, `,"message":`...), body...)
	return append(dst, "}\n"...)
}

func (form) AppendSnapshot(dst []byte, _ uint64, body []byte) []byte {
	dst = append(append(dst, `{"type":"snapshot","snapshot":`...), body...)
	return append(dst, "}\n"...)
}

func (form) AppendReset(dst []byte, _ uint64, reason contracts.ResetReason, body []byte) []byte {
	dst = append(append(dst, `{"type":"reset","reason":"`...), reason...)
	dst = append(append(dst, `","snapshot":`...), body...)
	return append(dst, "}\n"...)
}

func (form) AppendHeartbeat(dst []byte, cursor uint64, _ bool) []byte {
	dst = strconv.AppendUint(append(dst, `{"type":"heartbeat","cursor":`...), cursor, 10)
	return append(dst, "}\n"...)
}

func (form) AppendHistory(dst, text []byte) []byte { return append(append(dst, text...), '\n') }

func (form) AppendControl(dst, text []byte) []byte { return append(append(dst, text...), '\n') }
