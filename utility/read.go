package utility

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

	// maxLineBytes bounds one line of a result; a longer one is cut.
	maxLineBytes = 256 << 10
)

// read serves utility_file_read.
func (h *Host) read(ctx context.Context, cmd *contracts.UtilityFileRead) error {
	res, err := h.readFile(cmd)
	if err != nil {
		return err
	}
	return h.publish(ctx, res)
}

func (h *Host) readFile(cmd *contracts.UtilityFileRead) (*contracts.UtilityFileReadResult, error) {
	res := &contracts.UtilityFileReadResult{ReadID: cmd.ReadID}
	rel, err := h.readPath(cmd, res)
	if err != nil {
		return nil, err
	}
	text, err := h.readText(cmd, rel, res.Path)
	if err != nil {
		return nil, err
	}
	offset, limit := int64(1), int64(defaultReadLines)
	if cmd.Offset != nil {
		offset = max(1, *cmd.Offset)
	}
	if cmd.Limit != nil {
		limit = min(max(1, *cmd.Limit), maxReadLines)
	}
	if !cutLines(res, text, offset, limit) && offset > 1 {
		return nil, refuse(contracts.CodeBadRequest, cmd.ReadID,
			fmt.Sprintf("Offset %d is beyond end of file (%d lines total)", offset, res.TotalLines))
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

// readText returns the text of the file at rel, which clients know as path.
func (h *Host) readText(cmd *contracts.UtilityFileRead, rel, path string) ([]byte, error) {
	f, err := h.ws.OpenFile(rel)
	switch {
	case errors.Is(err, workspace.ErrOutside):
		return nil, outside(cmd.ReadID, path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse(contracts.CodeNotFound, cmd.ReadID, "File not found: "+path)
	case err != nil:
		return nil, refuse(contracts.CodeAccessDenied, cmd.ReadID, "File not readable: "+path)
	}
	defer f.Close()
	info, err := f.Stat()
	switch limit := h.opts.MaxReadBytes; {
	case err != nil:
		return nil, refuse(contracts.CodeAccessDenied, cmd.ReadID, "File not readable: "+path)
	case !info.Mode().IsRegular():
		return nil, refuse(contracts.CodeBadRequest, cmd.ReadID, "utility_file_read only supports regular files: "+path)
	case info.Size() > limit:
		return nil, tooLarge(cmd.ReadID, path, info.Size(), limit)
	}
	return h.readAll(cmd, f, path)
}

// readAll reads a file that may have grown since its size was checked.
func (h *Host) readAll(cmd *contracts.UtilityFileRead, f *os.File, path string) ([]byte, error) {
	limit := h.opts.MaxReadBytes
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, refuse(contracts.CodeAccessDenied, cmd.ReadID, "File not readable: "+path)
	case int64(len(text)) > limit:
		return nil, tooLarge(cmd.ReadID, path, int64(len(text)), limit)
	case bytes.IndexByte(text[:min(len(text), sniffBytes)], 0) >= 0:
		return nil, refuse(contracts.CodeBadRequest, cmd.ReadID, "utility_file_read only supports text files: "+cmd.Path)
	}
	return bytes.TrimPrefix(text, []byte("\uFEFF")), nil
}

func tooLarge(id, path string, size, limit int64) error {
	return refuse(contracts.CodePayloadTooLarge, id,
		fmt.Sprintf("File size exceeds maximum allowed limit: %s (%d bytes, max: %d bytes)", path, size, limit))
}

// cutLines fills in the lines of text from offset on, at most limit of them. It
// reports false if there are none.
func cutLines(res *contracts.UtilityFileReadResult, text []byte, offset, limit int64) bool {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	text = bytes.TrimSuffix(text, []byte("\n"))
	if len(text) == 0 {
		return false
	}
	var content strings.Builder
	left := maxResultBytes
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		res.TotalLines++
		if res.TotalLines < offset || res.TotalLines-offset >= limit || left <= 0 {
			continue
		}
		shown := showLine(line)
		if left -= wireBytes(shown) + len(`\n`); left < 0 {
			continue
		}
		if res.TotalLines > offset {
			content.WriteByte('\n')
		}
		content.WriteString(shown)
		res.EndLine = res.TotalLines
	}
	if offset > res.TotalLines {
		return false
	}
	res.Content, res.StartLine = content.String(), offset
	res.Truncated = res.EndLine < res.TotalLines
	return true
}

// showLine returns a line as valid text, cut if it is too long.
func showLine(line []byte) string {
	text := validText(line[:min(len(line), maxLineBytes)])
	if len(line) <= maxLineBytes && wireBytes(text) <= maxLineBytes {
		return text
	}
	size := 0
	for i, c := range text {
		if size += wireBytes(string(c)); size > maxLineBytes {
			text = text[:i]
			break
		}
	}
	return fmt.Sprintf("%s… [line cut, %d bytes]", text, len(line))
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
