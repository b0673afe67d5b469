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
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

const (
	defaultReadLines = 400
	maxReadLines     = 2000

	// sniffBytes is the size of the beginning of a file that is checked for
	// being text (R98).
	sniffBytes = 2048

	// maxResultBytes bounds a result on the wire without the paths in it. A
	// longer result is cut and says so.
	maxResultBytes = contracts.MaxEventBytes - 128<<10

	// maxLineBytes bounds one line of a result. A line that is longer, or longer
	// than a result, is cut.
	maxLineBytes = 1 << 20

	// readBuffer is the size of the buffer for reading a file, in bytes.
	readBuffer = 64 << 10

	// maxReadTime bounds reading a file, because some special files block at
	// their end.
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
	limit := min(max(1, given(cmd.Limit, defaultReadLines)), maxReadLines)
	x := excerpt{res: res, offset: max(1, given(cmd.Offset, 1)), limit: limit, left: maxResultBytes}
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

// readPath fills in the paths of the result and returns the file's path below
// the root.
func (h *Host) readPath(cmd *contracts.UtilityFileRead, res *contracts.UtilityFileReadResult) (string, error) {
	base := given(cmd.Cwd, ".")
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

// openText opens the file at rel, which clients know as path. It opens regular
// files only: opening another file may block or have an effect.
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

// readLines reads a file, which may have grown since its size was checked. It
// reads the whole file, because the result has the number of lines, but keeps
// the shown lines only.
func (h *Host) readLines(ctx context.Context, cmd *contracts.UtilityFileRead, f *os.File, x *excerpt) error {
	limit := h.opts.MaxReadBytes
	ctx, cancel := context.WithTimeout(ctx, maxReadTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Now()) })() // an error says that reads of this file do not block
	in := &io.LimitedReader{R: f, N: limit + 1}
	text := bufio.NewReaderSize(in, readBuffer)
	start, _ := text.Peek(sniffBytes) // a later read returns an error again
	if bytes.IndexByte(start, 0) >= 0 {
		return refuse(contracts.CodeBadRequest, cmd.ReadID, "utility_file_read only supports text files: "+cmd.Path)
	}
	if bytes.HasPrefix(start, []byte(byteOrderMark)) {
		_, _ = text.Discard(len(byteOrderMark)) // it is buffered
	}
	err := x.read(text)
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

const byteOrderMark = "\uFEFF"

// An excerpt is the shown lines of a file: at most limit lines from offset on.
type excerpt struct {
	res           *contracts.UtilityFileReadResult
	offset, limit int64
	left          int // bytes left on the wire

	content strings.Builder
	line    []byte // the beginning of the current line if it is shown; at most maxLineBytes+1
	size    int    // bytes of the current line so far
	blank   bool   // the last complete line was empty
}

// read reads lines until the end of the text, or an error.
func (x *excerpt) read(text *bufio.Reader) error {
	for {
		part, more, err := text.ReadLine()
		if err != nil {
			return err
		}
		if x.shows(x.res.TotalLines + 1) {
			x.line = append(x.line, part[:min(len(part), maxLineBytes+1-len(x.line))]...)
		}
		if x.size += len(part); !more {
			x.endLine()
		}
	}
}

// shows reports whether line n belongs in the result.
func (x *excerpt) shows(n int64) bool {
	return n >= x.offset && n-x.offset < x.limit && x.left > 0
}

func (x *excerpt) endLine() {
	x.res.TotalLines++
	if n := x.res.TotalLines; x.shows(n) {
		text := showLine(x.line, x.size)
		if x.left -= wireBytes(text) + len(`\n`); x.left >= 0 {
			if n > x.offset {
				x.content.WriteByte('\n')
			}
			x.content.WriteString(text)
			x.res.EndLine = n
		}
	}
	x.blank = x.size == 0
	x.line, x.size = x.line[:0], 0
}

// finish completes the result. It returns false if the file has no line: it is
// empty or a single line end.
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

// showLine returns a line of size bytes as valid text, cut if it is too long.
// Of a longer line than maxLineBytes, line need not have more than one byte more.
func showLine(line []byte, size int) string {
	text := validText([]byte(abridge.Head(string(line), maxLineBytes)))
	room := maxResultBytes - len(`\n`)
	if size <= maxLineBytes && wireBytes(text) <= room {
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

// validText returns b as text with U+FFFD for every byte that is not UTF-8.
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// wireBytes returns the maximum length of valid text in a JSON string.
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
