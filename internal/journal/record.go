package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
)

// A record is an entry in a segment file, little endian:
//
//	 0  uint32  CRC-32C of everything after it
//	 4  uint32  length of the body
//	 8  uint64  cursor
//	16  int64   time
//	24  uint8   kind, and recordMore
//	25  uint8   class
//	26  uint32  start of the text span
//	30  uint32  end of the text span
//	34          body
//
// The cursor detects records that are intact but were moved, repeated or left out.
const recordHead = 34

// recordMore is set in the kind of all records of a batch except the last, so that
// recovery recognizes an incomplete batch.
const recordMore = 0x80

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// appendRecord appends the record of e.
func appendRecord(dst []byte, e *Entry, more bool) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.Body)))
	dst = binary.LittleEndian.AppendUint64(dst, e.Cursor)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Time))
	kind := byte(e.Kind)
	if more {
		kind |= recordMore
	}
	dst = append(dst, kind, byte(e.Class))
	dst = binary.LittleEndian.AppendUint32(dst, e.TextStart)
	dst = binary.LittleEndian.AppendUint32(dst, e.TextEnd)
	dst = append(dst, e.Body...)
	binary.LittleEndian.PutUint32(dst[start:], crc32.Checksum(dst[start+4:], castagnoli()))
	return dst
}

// parseHead reads the head of a record. The entry has no body yet. n is the length
// of the body; ok reports whether the values are possible.
func parseHead(p []byte) (e Entry, n int, more, ok bool) {
	size := binary.LittleEndian.Uint32(p[4:])
	e = Entry{
		Cursor:    binary.LittleEndian.Uint64(p[8:]),
		Time:      int64(binary.LittleEndian.Uint64(p[16:])),
		Kind:      Kind(p[24] &^ recordMore),
		Class:     Class(p[25]),
		TextStart: binary.LittleEndian.Uint32(p[26:]),
		TextEnd:   binary.LittleEndian.Uint32(p[30:]),
	}
	ok = size <= MaxBody && e.Kind <= Joint && e.TextStart <= e.TextEnd && e.TextEnd <= size &&
		(e.Kind != Joint || e.TextStart > 0)
	return e, int(size), p[24]&recordMore != 0, ok
}

// intact reports whether p, a whole record, has the right checksum.
func intact(p []byte) bool {
	return crc32.Checksum(p[4:], castagnoli()) == binary.LittleEndian.Uint32(p)
}

// A scanner reads consecutive records. Its memory is bounded by the longest record
// that lies completely within the file.
type scanner struct {
	file io.ReaderAt
	name string // for errors
	off  int64  // of the next record
	end  int64  // end of the records
	next uint64 // cursor that the next record must have
	more bool   // the last record's batch continues

	buf    []byte
	unread []byte // the part of buf that begins at off
}

const scanBuffer = 64 << 10

var scanners = sync.Pool{New: func() any { return &scanner{buf: make([]byte, scanBuffer)} }}

// newScanner returns a pooled scanner of file from off to end.
func newScanner(file io.ReaderAt, name string, off, end int64, next uint64) *scanner {
	s := scanners.Get().(*scanner)
	*s = scanner{file: file, name: name, off: off, end: end, next: next, buf: s.buf}
	return s
}

// release returns s to the pool unless its buffer is large.
func (s *scanner) release() {
	if len(s.buf) <= 1<<20 {
		s.file, s.unread = nil, nil
		scanners.Put(s)
	}
}

// scan returns the next entry; its body is valid until the next call. It returns
// io.EOF at the end. It returns ErrCorrupt, without moving, if the next record is
// damaged or has the wrong cursor.
func (s *scanner) scan() (Entry, error) {
	if s.off >= s.end {
		return Entry{}, io.EOF
	}
	p, err := s.peek(recordHead)
	if err != nil {
		return Entry{}, err
	}
	e, n, more, ok := parseHead(p)
	if !ok || e.Cursor != s.next {
		return Entry{}, s.corrupt()
	}
	if p, err = s.peek(recordHead + n); err != nil {
		return Entry{}, err
	}
	if !intact(p) {
		return Entry{}, s.corrupt()
	}
	e.Body = p[recordHead:]
	s.off += int64(len(p))
	s.unread = s.unread[len(p):]
	s.next++
	s.more = more
	return e, nil
}

// peek returns the next n bytes without moving.
func (s *scanner) peek(n int) ([]byte, error) {
	if int64(n) > s.end-s.off {
		return nil, s.corrupt()
	}
	if len(s.unread) < n {
		have := len(s.unread)
		if n > len(s.buf) {
			bigger := make([]byte, n)
			copy(bigger, s.unread)
			s.buf = bigger
		} else {
			copy(s.buf, s.unread)
		}
		want := int(min(int64(len(s.buf)), s.end-s.off))
		if _, err := s.file.ReadAt(s.buf[have:want], s.off+int64(have)); err != nil {
			if err == io.EOF {
				err = s.corrupt() // the file is shorter than it was
			}
			return nil, err
		}
		s.unread = s.buf[:want]
	}
	return s.unread[:n:n], nil
}

func (s *scanner) corrupt() error { return corruptAt(s.name, s.off) }

func corruptAt(name string, off int64) error {
	return fmt.Errorf("%w: %s at offset %d", ErrCorrupt, name, off)
}
