package hecate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
)

// An entry of the log is one batch of events of one session. Its body has lines: the
// header, the events as they were first encoded, and the state of the translation after
// them. A crash therefore leaves all of a batch or nothing of it.
type header struct {
	Session string `json:"session"`
	Epoch   string `json:"epoch"`  // of Cursor
	Cursor  uint64 `json:"cursor"` // position in the history of the session
	First   uint64 `json:"first"`  // number of the first event among all events of the log
	Parts   []part `json:"parts"`  // of the events, in their order
}

// A part is the consecutive events of one run.
type part struct {
	Run  string `json:"run"`
	Task string `json:"task"`
	Seq  uint64 `json:"seq"` // of the first event
	N    uint64 `json:"n"`   // how many events
}

func encodeEntry(h header, events []wire.Event, state []byte) ([]byte, error) {
	body, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	for i := range events {
		body = append(append(body, '\n'), events[i].Raw...)
	}
	return append(append(body, '\n'), state...), nil
}

func decodeEntry(body []byte) (h header, lines [][]byte, state []byte, err error) {
	all := bytes.Split(body, []byte{'\n'})
	if len(all) < 2 {
		return h, nil, nil, errors.New("entry has no state")
	}
	if err = json.Unmarshal(all[0], &h); err != nil {
		return h, nil, nil, err
	}
	lines, state = all[1:len(all)-1], all[len(all)-1]
	n := uint64(0)
	for _, p := range h.Parts {
		n += p.N
	}
	if n != uint64(len(lines)) {
		return h, nil, nil, fmt.Errorf("entry has %d events, want %d", len(lines), n)
	}
	for _, line := range lines {
		if len(line) < chatAt+chatLen {
			return h, nil, nil, fmt.Errorf("entry has an event of %d bytes", len(line))
		}
	}
	return h, lines, state, nil
}

// A record is an event with its positions, as readers get it.
type record struct {
	number uint64 // among all events of the log, from 1
	seq    uint64 // in its run
	line   []byte // the stored bytes
}

// An envelope begins with members of fixed length, because the server makes all its ids.
const (
	idLen   = len("run_") + 26
	runAt   = len(`{"schema_version":"1","event_id":"evt_`) + 26 + len(`","run_id":"`)
	taskAt  = runAt + idLen + len(`","task_id":"`)
	taskLen = len("task_") + 26
	chatAt  = taskAt + taskLen + len(`","session_id":"`)
	chatLen = len("chat_") + 26
)

func (r record) run() string  { return string(r.line[runAt:][:idLen]) }
func (r record) task() string { return string(r.line[taskAt:][:taskLen]) }
func (r record) chat() string { return string(r.line[chatAt:][:chatLen]) }

// kind returns the type of the event. No member before it can contain its key.
func (r record) kind() string {
	_, rest, _ := bytes.Cut(r.line[chatAt:], []byte(`"type":"`))
	name, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(name)
}

// frames is the form in which the log keeps its newest entries in memory: the cursor and
// the length of the records, then the records. All readers share them.
type frames struct{}

const recordHead = 8 + 8 + 4 // number, sequence and length

func (frames) AppendMessage(dst []byte, cursor uint64, body []byte) []byte {
	h, lines, _, err := decodeEntry(body)
	if err != nil || len(lines) == 0 { // open has read all entries, and append has made the others
		return dst
	}
	dst = binary.LittleEndian.AppendUint64(dst, cursor)
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	number, i := h.First, 0
	for _, p := range h.Parts {
		for seq := p.Seq; seq < p.Seq+p.N; seq++ {
			dst = binary.LittleEndian.AppendUint64(dst, number)
			dst = binary.LittleEndian.AppendUint64(dst, seq)
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(lines[i])))
			dst = append(dst, lines[i]...)
			number, i = number+1, i+1
		}
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

func (frames) AppendSnapshot(dst []byte, _ uint64, _ []byte) []byte { return dst }

// eachRecord calls do with the records of frames until it returns false. cursor is that of
// the entry.
func eachRecord(text []byte, do func(cursor uint64, r record) bool) (more bool) {
	for len(text) > 0 {
		cursor := binary.LittleEndian.Uint64(text)
		records := text[12:][:binary.LittleEndian.Uint32(text[8:])]
		text = text[12+len(records):]
		for len(records) > 0 {
			size := int(binary.LittleEndian.Uint32(records[16:]))
			r := record{
				number: binary.LittleEndian.Uint64(records), seq: binary.LittleEndian.Uint64(records[8:]),
				line: records[recordHead:][:size:size],
			}
			records = records[recordHead+size:]
			if !do(cursor, r) {
				return false
			}
		}
	}
	return true
}
