package double

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	maxFile  = 2_097_152
	sniffed  = 2_048
	maxShown = 1 << 20 // of one line
)

// readLink returns where a link leads, or nothing if there is none.
func readLink(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return target
}

// readFile shows lines of a file.
func (r *room) readFile(cmd *contracts.UtilityFileRead) *contracts.Error {
	cwd := r.directory(cmd.Cwd)
	if !cwd.inside {
		return cwd.outside()
	}
	path := cmd.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd.real, path)
	}
	path = filepath.Clean(path)
	relative, err := filepath.Rel(cwd.real, path)
	if (err != nil || !filepath.IsLocal(relative)) && !r.s.has(ReadsAnywhere) {
		return r.traversal(path)
	}
	if p := r.locate(path); !p.inside && !r.s.has(ReadsAnywhere) {
		return p.outside()
	}
	text, e := readText(path, cmd.Path)
	if e != nil {
		return e
	}
	res := &contracts.UtilityFileReadResult{ReadID: cmd.ReadID, Path: path, RelativePath: filepath.ToSlash(relative), Cwd: cwd.real}
	if e := window(res, text, orDefault(cmd.Offset, 1, 1, 1<<62), orDefault(cmd.Limit, 400, 1, 2000)); e != nil {
		return e
	}
	res.Truncated = res.Truncated && !r.s.has(NeverTruncated)
	r.publish(res)
	return nil
}

// traversal refuses a path that leaves the directory given.
func (r *room) traversal(path string) *contracts.Error {
	text := "Path traversal detected: " + path
	if relative, err := filepath.Rel(r.s.workspace(), path); err != nil || !filepath.IsLocal(relative) {
		text += " is outside workspace root"
	}
	return noTool(contracts.CodeWorkspaceViolation, text)
}

// readText reads a file that clients call named.
func readText(path, named string) (string, *contracts.Error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", noTool(contracts.CodeNotFound, "File not found: "+path)
	case err != nil:
		return "", noTool(contracts.CodeAccessDenied, "File not readable: "+path)
	case !info.Mode().IsRegular():
		return "", noTool(contracts.CodeBadRequest, "utility_file_read only supports regular files: "+path)
	case info.Size() > maxFile:
		return "", noTool(contracts.CodePayloadTooLarge, fmt.Sprintf("File size exceeds maximum allowed limit: %s (%d bytes, max: %d bytes)", path, info.Size(), maxFile))
	}
	text, err := os.ReadFile(path)
	switch {
	case err != nil:
		return "", noTool(contracts.CodeAccessDenied, "File not readable: "+path)
	case bytes.IndexByte(text[:min(len(text), sniffed)], 0) >= 0:
		return "", noTool(contracts.CodeBadRequest, "utility_file_read only supports text files: "+named)
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	return strings.ReplaceAll(oneByOne(text), "\r\n", "\n"), nil
}

// window fills in the lines asked for.
func window(res *contracts.UtilityFileReadResult, text string, first, count int64) *contracts.Error {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	total := int64(len(lines))
	if strings.TrimSuffix(text, "\n") == "" {
		total = 0
	}
	if first > max(total, 1) {
		return noTool(contracts.CodeBadRequest, fmt.Sprintf("Offset %d is beyond end of file (%d lines total)", first, total))
	}
	if total == 0 {
		return nil
	}
	last := min(total, first+count-1)
	shown := lines[first-1 : last]
	for i, line := range shown {
		if len(line) > maxShown-len(cutMark) {
			shown[i] = strings.ToValidUTF8(line[:maxShown-len(cutMark)], "") + cutMark
		}
	}
	res.Content, res.StartLine, res.EndLine, res.TotalLines, res.Truncated = strings.Join(shown, "\n"), first, last, total, last < total
	return nil
}

const cutMark = " [cut]"
