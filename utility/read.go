package utility

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/workspace"
)

const (
	defaultReadLines = 400
	maxReadLines     = 2000

	// sniffBytes is how much of a file is looked at to tell text from other
	// things (R98).
	sniffBytes = 2048

	// maxResultBytes bounds what a result takes on the wire, beside the paths
	// in it; a longer one ends early and says so.
	maxResultBytes = contracts.MaxEventBytes - 128<<10

	// maxLineBytes bounds one line of a result; a longer one is cut, and so is
	// one that no result has room for.
	maxLineBytes = 1 << 20

	// readBuffer is how much of a file is held beside what is shown of it.
	readBuffer = 64 << 10

	// maxReadTime bounds how long a file is read: systems have some that wait at
	// their end for more.
	maxReadTime = 5 * time.Second
)

// read serves utility_file_read.
func (h *Host) read(ctx context.Context, cmd *contracts.UtilityFileRead) error {
	res, err := h.readFile(ctx, cmd)
	if err != nil {
		return err
	}
	return h.publish(ctx, res)
}

func (h *Host) readFile(ctx context.Context, cmd *contracts.UtilityFileRead) (*contracts.UtilityFileReadResult, error) {
	res := &contracts.UtilityFileReadResult{ReadID: cmd.ReadID}
	rel, err := h.readPath(cmd, res)
	if err != nil {
		return nil, err
	}
	x := excerpt{res: res, offset: 1, limit: defaultReadLines, left: maxResultBytes}
	if cmd.Offset != nil {
		x.offset = max(1, *cmd.Offset)
	}
	if cmd.Limit != nil {
		x.limit = min(max(1, *cmd.Limit), maxReadLines)
	}
	f, err := h.openText(cmd, rel, res.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := h.readLines(ctx, cmd, f, &x); err != nil {
		return nil, err
	}
	if !x.finish() && x.offset > 1 {
		return nil, refuse(contracts.CodeBadRequest, cmd.ReadID,
			fmt.Sprintf("Offset %d is beyond end of file (%d lines total)", x.offset, res.TotalLines))
	}
	return res, nil
}

// readPath fills in the paths of the result and returns that of the file below
// the root.
func (h *Host) readPath(cmd *contracts.UtilityFileRead, res *contracts.UtilityFileReadResult) (string, error) {
	base := "."
	if cmd.Cwd != nil {
		base = *cmd.Cwd
	}
	cwd, err := h.ws.Rel(base)
	if err != nil {
		return "", outside(cmd.ReadID, h.ws.Abs(base))
	}
	res.Cwd = h.ws.At(cwd)
	path := cmd.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(res.Cwd, path)
	}
	rel, err := h.ws.Rel(path)
	if err != nil {
		return "", refuse(contracts.CodeWorkspaceViolation, cmd.ReadID, "Path traversal detected: "+filepath.Clean(path)+" is outside workspace root")
	}
	res.Path = h.ws.At(rel)
	below, err := filepath.Rel(cwd, rel)
	if err != nil || !filepath.IsLocal(below) {
		return "", refuse(contracts.CodeWorkspaceViolation, cmd.ReadID, "Path traversal detected: "+res.Path)
	}
	res.RelativePath = filepath.ToSlash(below)
	return rel, nil
}

// openText opens the file at rel, which clients know as path. What is no regular
// file is not opened: that may wait for somebody, or do something.
func (h *Host) openText(cmd *contracts.UtilityFileRead, rel, path string) (*os.File, error) {
	info, err := h.ws.Stat(rel)
	if err == nil && info.Mode().IsRegular() {
		var f *os.File
		if f, err = h.ws.OpenFile(rel); err == nil {
			if info, err = f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() <= h.opts.MaxReadBytes {
				return f, nil
			}
			_ = f.Close()
		}
	}
	switch limit := h.opts.MaxReadBytes; {
	case errors.Is(err, workspace.ErrOutside):
		return nil, outside(cmd.ReadID, path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse(contracts.CodeNotFound, cmd.ReadID, "File not found: "+path)
	case err != nil:
		return nil, unreadable(cmd.ReadID, path)
	case !info.Mode().IsRegular():
		return nil, refuse(contracts.CodeBadRequest, cmd.ReadID, "utility_file_read only supports regular files: "+path)
	default:
		return nil, tooLarge(cmd.ReadID, path, info.Size(), limit)
	}
}

func unreadable(id, path string) error {
	return refuse(contracts.CodeAccessDenied, id, "File not readable: "+path)
}

func tooLarge(id, path string, size, limit int64) error {
	return refuse(contracts.CodePayloadTooLarge, id,
		fmt.Sprintf("File size exceeds maximum allowed limit: %s (%d bytes, max: %d bytes)", path, size, limit))
}

// readLines reads a file, which may have grown since its size was checked. All
// of it is read, because the result says how many lines there are, but only what
// is shown is kept.
func (h *Host) readLines(ctx context.Context, cmd *contracts.UtilityFileRead, f *os.File, x *excerpt) error {
	limit := h.opts.MaxReadBytes
	ctx, cancel := context.WithTimeout(ctx, maxReadTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Now()) })() // it fails for files that do not wait
	in := &io.LimitedReader{R: untilEnd{ctx, f}, N: limit + 1}
	text := bufio.NewReaderSize(in, readBuffer)
	start, _ := text.Peek(sniffBytes) // an error comes again
	if bytes.IndexByte(start, 0) >= 0 {
		return refuse(contracts.CodeBadRequest, cmd.ReadID, "utility_file_read only supports text files: "+cmd.Path)
	}
	if bytes.HasPrefix(start, []byte(byteOrderMark)) {
		_, _ = text.Discard(len(byteOrderMark)) // it is there
	}
	var err error
	for err == nil {
		var part []byte
		part, err = text.ReadSlice('\n')
		if x.add(part); errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
	}
	switch {
	case !errors.Is(err, io.EOF) && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return refuse(contracts.CodeTimeout, cmd.ReadID, "File could not be read in time: "+x.res.Path)
	case !errors.Is(err, io.EOF) && ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.Is(err, io.EOF):
		return unreadable(cmd.ReadID, x.res.Path)
	case in.N == 0:
		return tooLarge(cmd.ReadID, x.res.Path, limit+1, limit)
	}
	return nil
}

// An untilEnd reads nothing once ctx has ended.
type untilEnd struct {
	ctx context.Context
	in  io.Reader
}

func (r untilEnd) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(b)
}

const byteOrderMark = "\uFEFF"

// An excerpt is the lines of a file that a result shows, at most limit of them
// from offset on.
type excerpt struct {
	res           *contracts.UtilityFileReadResult
	offset, limit int64
	left          int // bytes on the wire

	content strings.Builder
	line    []byte // the beginning of the line that is being read, if it is shown; at most maxLineBytes and a line end
	size    int    // how long that line is so far
	blank   bool   // the last line that ended was empty
	last    byte   // of it
}

// add takes in the next bytes of the file. A line end comes last in them.
func (x *excerpt) add(part []byte) {
	if len(part) == 0 {
		return
	}
	if x.shows(x.res.TotalLines + 1) {
		room := maxLineBytes + len("\r\n") - len(x.line)
		x.line = append(x.line, part[:min(len(part), room)]...)
	}
	x.size += len(part)
	if part[len(part)-1] == '\n' {
		x.size--
		if len(part) > 1 {
			x.last = part[len(part)-2]
		}
		if x.size > 0 && x.last == '\r' {
			x.size--
		}
		x.endLine()
		return
	}
	x.last = part[len(part)-1]
}

// shows reports whether there is to be a line of that number in the result.
func (x *excerpt) shows(n int64) bool {
	return n >= x.offset && n-x.offset < x.limit && x.left > 0
}

func (x *excerpt) endLine() {
	x.res.TotalLines++
	if n := x.res.TotalLines; x.shows(n) {
		text := showLine(x.line[:min(len(x.line), x.size)], x.size)
		if x.left -= wireBytes(text) + len(`\n`); x.left >= 0 {
			if n > x.offset {
				x.content.WriteByte('\n')
			}
			x.content.WriteString(text)
			x.res.EndLine = n
		}
	}
	x.blank = x.size == 0
	x.line, x.size, x.last = x.line[:0], 0, 0
}

// finish completes the result. It reports false if there is no line in it: an
// empty file has none, and nor has one with nothing but a line end.
func (x *excerpt) finish() bool {
	if x.size > 0 {
		x.endLine()
	}
	res := x.res
	if res.TotalLines == 1 && x.blank {
		res.TotalLines, res.EndLine = 0, 0
	}
	if x.offset > res.TotalLines {
		return false
	}
	res.Content, res.StartLine = x.content.String(), x.offset
	res.Truncated = res.EndLine < res.TotalLines
	return true
}

// showLine returns a line of that many bytes as valid text, cut if it is too
// long. Of a longer one only the beginning need be given.
func showLine(line []byte, size int) string {
	whole := len(line) == size && size <= maxLineBytes
	line = line[:min(len(line), maxLineBytes)]
	if !whole {
		line = line[:wholeRunes(line)]
	}
	text := validText(line)
	room := maxResultBytes - len(`\n`)
	if whole && wireBytes(text) <= room {
		return text
	}
	mark := fmt.Sprintf("… [line cut, %d bytes]", size)
	room -= wireBytes(mark)
	for i, c := range text {
		if room -= wireBytes(string(c)); room < 0 {
			text = text[:i]
			break
		}
	}
	return text + mark
}

// wholeRunes returns how much of text is left without a character at its end
// that was cut.
func wholeRunes(text []byte) int {
	for n := len(text) - 1; n >= max(0, len(text)-utf8.UTFMax); n-- {
		if utf8.RuneStart(text[n]) {
			if utf8.FullRune(text[n:]) {
				break
			}
			return n
		}
	}
	return len(text)
}

// validText returns b as text. Every byte that is not UTF-8 becomes U+FFFD.
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// wireBytes returns how long valid text is at most in a JSON string.
func wireBytes(text string) int {
	n := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"', c == '\\', c == '\n', c == '\t', c == '\r':
			n++
		case c < ' ':
			n += len(`\u0000`) - 1
		case c == 0xe2: // the first byte of U+2028, which is escaped
			n += len(`\u2028`) - 3
		}
	}
	return n
}
