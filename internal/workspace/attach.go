package workspace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// Bounds on the attachments of one prompt (R43, R45).
const (
	maxAttachments     = 20
	maxAttachmentTotal = 32 << 20
	maxAttachmentBytes = 10 << 20
	maxTextChars       = 200_000
)

// An Attachment is a file that came with a prompt, checked and read. Exactly
// one of Text and Data is set.
type Attachment struct {
	Path     string // as the client gave it
	MimeType string // application/octet-stream if unknown
	Text     string // a text document, valid UTF-8, cut at 200,000 characters
	Data     []byte // an image
}

// imageTypes has the extensions of image files. A file with one of them counts
// as an image, whatever it holds.
var imageTypes = map[string]string{
	".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".png": "image/png", ".webp": "image/webp",
	".gif": "image/gif", ".tiff": "image/tiff", ".avif": "image/avif", ".heif": "image/heif",
}

// Attachments reads the files that a prompt names: at most 20 files of 10 MiB,
// and 32 MiB in all. It returns the files that it could read, and for each other file one
// message for the client.
func (w *Workspace) Attachments(paths []string) ([]Attachment, []string) {
	var loaded []Attachment
	var failed []string
	left := int64(maxAttachmentTotal)
	for i, path := range paths {
		if i == maxAttachments {
			failed = append(failed, fmt.Sprintf("Too many attachments: only the first %d of %d are used", maxAttachments, len(paths)))
			break
		}
		a, size, err := w.attachment(path, left)
		if err != nil {
			failed = append(failed, err.Error()+": "+path)
			continue
		}
		left -= size
		loaded = append(loaded, a)
	}
	return loaded, failed
}

// A refusal says why an attachment cannot be used. The client shows the text;
// clients also compare all of these texts except that of errTotal.
type refusal string

func (r refusal) Error() string { return string(r) }

const (
	errNotReadable refusal = "Attachment not readable"
	errNotFound    refusal = "Attachment not found"
	errUnsupported refusal = "Unsupported attachment (not image/text)"
	errTotal       refusal = "Attachments together are larger than 32MB"
)

// attachment reads one file of at most left bytes. It returns the size on disk.
func (w *Workspace) attachment(path string, left int64) (Attachment, int64, error) {
	rel, err := w.Rel(path)
	if err != nil {
		return Attachment{}, 0, errNotReadable
	}
	limit := min(left, maxAttachmentBytes)
	data, info, err := w.ReadFile(rel, limit)
	switch {
	case errors.Is(err, ErrNotRegular):
		return Attachment{}, 0, errUnsupported
	case errors.Is(err, ErrTooLarge) && left < info.Size() && info.Size() <= maxAttachmentBytes:
		return Attachment{}, 0, errTotal
	case errors.Is(err, ErrTooLarge):
		return Attachment{}, 0, tooLarge(max(info.Size(), limit+1)) // it may have grown
	case errors.Is(err, fs.ErrNotExist) && info != nil: // it has just been removed
		return Attachment{}, 0, errNotFound
	case err != nil:
		return Attachment{}, 0, errNotReadable
	}
	a, size := Attachment{Path: path, MimeType: mimeType(path)}, int64(len(data))
	if strings.HasPrefix(a.MimeType, "image/") {
		a.Data = data
		return a, size, nil
	}
	if size == 0 || bytes.IndexByte(data, 0) >= 0 {
		return Attachment{}, 0, errUnsupported
	}
	a.Text = abridge.FirstChars(strings.ToValidUTF8(string(data), string(utf8.RuneError)), maxTextChars)
	return a, size, nil
}

func tooLarge(size int64) error {
	const mib = 1 << 20
	return refusal(fmt.Sprintf("Attachment too large (%dMB)", (size+mib/2)/mib))
}

// mimeType uses the extension alone, as clients expect.
func mimeType(path string) string {
	ext := strings.ToLower(filepath.Ext(path))
	if t, ok := imageTypes[ext]; ok {
		return t
	}
	t, _, _ := strings.Cut(mime.TypeByExtension(ext), ";")
	return cmp.Or(t, "application/octet-stream")
}
