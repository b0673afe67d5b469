package stdio

import "github.com/seed-028515a8/maestro/contracts"

// Form builds lines of bare messages, without cursors. A local client has no
// snapshots, resets or heartbeats. All Forms are equal.
type Form struct{}

var _ contracts.Form = Form{}

// AppendMessage appends body as a line.
func (Form) AppendMessage(dst []byte, _ uint64, body []byte) []byte { return appendLine(dst, body) }

// AppendSnapshot appends nothing.
func (Form) AppendSnapshot(dst []byte, _ uint64, _ []byte) []byte { return dst }

// AppendReset appends nothing.
func (Form) AppendReset(dst []byte, _ uint64, _ contracts.ResetReason, _ []byte) []byte { return dst }

// AppendHeartbeat appends nothing.
func (Form) AppendHeartbeat(dst []byte, _ uint64, _ bool) []byte { return dst }

// AppendOpening appends nothing.
func (Form) AppendOpening(dst []byte) []byte { return dst }

// AppendControl appends text as a line.
func (Form) AppendControl(dst, text []byte) []byte { return appendLine(dst, text) }

func appendLine(dst, text []byte) []byte { return append(append(dst, text...), '\n') }
