package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// A segment is one file: a header and consecutive records. Only the newest segment
// is written to. A batch is always in one segment.
type segment struct {
	path  string
	head  segmentHead
	index index

	// Guarded by File.mu.
	last   uint64      // newest cursor
	size   int64       // bytes of the header and whole batches
	synced int64       // bytes of size that are on stable storage
	file   segmentFile // open for writing until sealed and synced; else nil
}

// A segmentFile is a file that a store appends to.
type segmentFile interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Close() error
}

// A segmentHead is a segment's header, little endian:
//
//	 0  [8]byte   magic
//	 8  uint32    version of the format
//	12  uint64    cursor of the first record
//	20  uint64    cursor of the record before it, in the segment before
//	28  uint64    newest checkpoint of the first batch, or zero
//	36  uint64    cursor up to which entries were on stable storage
//	44  int64     time of the first record
//	52  [33]byte  id of the journal
//	85  uint32    CRC-32C of everything before it
type segmentHead struct {
	first, prev uint64
	checkpoint  uint64
	synced      uint64
	time        int64
	journal     string
	old         bool // its version is oldSegmentVersion
}

const (
	segmentMagic   = "maestroj"
	segmentVersion = 3
	segmentSuffix  = ".seg"
	headSize       = 89
	epochSize      = 33

	// oldSegmentVersion has no entries of kind Joint. Segments of this version are read,
	// and new entries begin another segment.
	oldSegmentVersion = 2
)

func (h *segmentHead) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, segmentMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, segmentVersion)
	dst = binary.LittleEndian.AppendUint64(dst, h.first)
	dst = binary.LittleEndian.AppendUint64(dst, h.prev)
	dst = binary.LittleEndian.AppendUint64(dst, h.checkpoint)
	dst = binary.LittleEndian.AppendUint64(dst, h.synced)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.time))
	dst = append(dst, h.journal...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli()))
}

// parseSegmentHead reads a header of headSize bytes. ok reports whether the
// checksum is right. An intact header of an unknown version is an error.
func parseSegmentHead(p []byte) (h segmentHead, ok bool, err error) {
	sum := binary.LittleEndian.Uint32(p[headSize-4:])
	if string(p[:8]) != segmentMagic || crc32.Checksum(p[:headSize-4], castagnoli()) != sum {
		return h, false, nil
	}
	version := binary.LittleEndian.Uint32(p[8:])
	if version != segmentVersion && version != oldSegmentVersion {
		return h, false, fmt.Errorf("%w %d", errVersion, version)
	}
	return segmentHead{
		first:      binary.LittleEndian.Uint64(p[12:]),
		prev:       binary.LittleEndian.Uint64(p[20:]),
		checkpoint: binary.LittleEndian.Uint64(p[28:]),
		synced:     binary.LittleEndian.Uint64(p[36:]),
		time:       int64(binary.LittleEndian.Uint64(p[44:])),
		journal:    string(p[52 : 52+epochSize]),
		old:        version == oldSegmentVersion,
	}, true, nil
}

// readHead reads the header of a segment file and the file's size. ok reports whether
// the header is complete and its checksum is right.
func readHead(f *os.File) (h segmentHead, size int64, ok bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return h, 0, false, err
	}
	var p [headSize]byte
	if size = info.Size(); size < headSize {
		return h, size, false, nil
	}
	if _, err := f.ReadAt(p[:], 0); err != nil {
		return h, size, false, err
	}
	if h, ok, err = parseSegmentHead(p[:]); err != nil {
		err = fmt.Errorf("%s: %w", f.Name(), err)
	}
	return h, size, ok, err
}

// segmentPath returns the file name of the segment that begins at cursor first.
// Names sort like cursors.
func segmentPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", first, segmentSuffix))
}

// segmentFirst is the inverse of segmentPath.
func segmentFirst(name string) (first uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, err == nil && first > 0
}

// checkpoint returns the newest checkpoint of the first batch, or zero if that
// batch is not whole.
func (s *segment) checkpoint() uint64 {
	if s.head.checkpoint > s.last {
		return 0
	}
	return s.head.checkpoint
}

func createSegment(path string) (segmentFile, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
}

func reopenSegment(path string) (segmentFile, error) {
	return os.OpenFile(path, os.O_RDWR, 0o600)
}

// openRegular opens a file for reading. A file that is not regular is ErrCorrupt:
// opening a FIFO would wait for a writer.
func openRegular(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrCorrupt, path)
	}
	return os.Open(path)
}

// An index holds the offsets of some records of a segment. Readers and writers add
// the records they pass, so the index of an old segment grows as it is read.
type index struct {
	mu     sync.Mutex
	points []point // ascending; at least indexStride bytes apart
}

type point struct {
	cursor uint64
	off    int64
}

const indexStride = 64 << 10

// note records that the record at cursor begins at off.
func (x *index) note(cursor uint64, off int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.points); n == 0 || off >= x.points[n-1].off+indexStride {
		x.points = append(x.points, point{cursor, off})
	}
}

// find returns the last known record at or before cursor, or the first record of
// the segment, whose cursor is first.
func (x *index) find(cursor, first uint64) point {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := sort.Search(len(x.points), func(i int) bool { return x.points[i].cursor > cursor })
	if i == 0 {
		return point{first, headSize}
	}
	return x.points[i-1]
}
