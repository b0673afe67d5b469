package tool

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/internal/agent/diff"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
)

const (
	// Bounds on what is shown of a file: of a line, and in all.
	maxReadLine = 2000
	maxReadText = 80_000

	// maxImageBytes is the largest picture that providers take: 5 MiB.
	maxImageBytes = 5 << 20

	byteOrderMark = "\uFEFF"
)

type readArgs struct {
	Path   string `json:"path" min:"1" about:"The file, relative to the workspace or absolute"`
	Offset int    `json:"offset,omitempty" default:"1" min:"1" about:"The first line to show; 1 if not given"`
	Limit  int    `json:"limit,omitempty" default:"2000" min:"1" about:"How many lines to show; 2000 if not given"`
}

func (k *Kit) read() Tool {
	return define(Tool{
		Tool: model.Tool{
			Name: "read",
			Description: "Shows a text file with line numbers, each followed by a tab that is not part of the file. Shows PNG, JPEG, GIF and WebP pictures, too. " +
				fmt.Sprintf("Lines longer than %d bytes are cut. The result says where to go on if there is more. ", maxReadLine) +
				"A file has to be read before it is changed with write or edit.",
		},
		Title: "Read",
	}, "Read", "Reading", "a file", func(a *readArgs) string { return a.Path }, k.runRead)
}

func (k *Kit) runRead(_ context.Context, a *readArgs, _ func(string) error) (Result, error) {
	f, err := k.locate(a.Path)
	if err != nil {
		return Result{}, err
	}
	data, _, err := k.load(f)
	if err != nil {
		return Result{}, err
	}
	mime, res := imageType(data), Result{}
	switch {
	case mime != "" && len(data) > maxImageBytes:
		return Result{}, refusal(fmt.Sprintf("%s is a picture of %d bytes, and at most %d can be shown.", f.name, len(data), maxImageBytes))
	case mime != "":
		res.Text = fmt.Sprintf("%s is a picture (%s, %s).", f.name, mime, count(len(data), "byte"))
		res.Images = []model.Image{{MimeType: mime, Data: data}}
	case bytes.IndexByte(data, 0) >= 0:
		return Result{}, refusal(fmt.Sprintf("%s is a binary file of %s. Look at it, or change it, with bash.", f.name, count(len(data), "byte")))
	default:
		if res.Text, err = excerpt(string(data), a.Offset, a.Limit); err != nil {
			return Result{}, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remember(f, data)
	return res, nil
}

// imageType returns the type of a picture that models can see, or "". The type comes
// from the content: providers refuse a picture of another type than they are told.
func imageType(data []byte) string {
	switch mime := http.DetectContentType(data); mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return mime
	}
	return ""
}

// excerpt returns at most limit lines of a file, from line offset on, with remarks
// about the file. The lines end in a line feed, whatever they end in in the file.
func excerpt(text string, offset, limit int) (string, error) {
	text = strings.TrimPrefix(text, byteOrderMark)
	lines := diff.Lines(text)
	switch {
	case len(lines) == 0:
		return "The file is empty.", nil
	case offset > len(lines):
		return "", refusal(fmt.Sprintf("There is no line %d: the file has %s.", offset, count(len(lines), "line")))
	}
	var b strings.Builder
	end := offset - 1
	for _, line := range lines[end:][:min(limit, len(lines)-end)] {
		shown := fmt.Sprintf("%6d\t%s\n", end+1, cutLine(valid(string(lineText([]byte(line)))), maxReadLine))
		if b.Len()+len(shown) > maxReadText {
			break
		}
		b.WriteString(shown)
		end++
	}
	if offset > 1 || end < len(lines) {
		fmt.Fprintf(&b, "[Lines %d to %d of %d.", offset, end, len(lines))
		if end < len(lines) {
			fmt.Fprintf(&b, " Go on with offset %d.", end+1)
		}
		b.WriteString("]\n")
	}
	b.WriteString(oddities(text))
	return b.String(), nil
}

// oddities returns remarks about what cannot be seen in a text, and edit does not hide.
func oddities(text string) string {
	remarks := ""
	if crlf, all := strings.Count(text, "\r\n"), strings.Count(text, "\n"); crlf > 0 && crlf < all {
		remarks = fmt.Sprintf("[%d of %d lines end in CRLF, the others in LF. Edit them one by one.]\n", crlf, all)
	}
	if !utf8.ValidString(text) {
		remarks += "[The file is not UTF-8: where U+FFFD is shown it has other bytes.]\n"
	}
	return remarks
}
