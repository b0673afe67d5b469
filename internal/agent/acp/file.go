package acp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/internal/workspace"
)

// maxFile bounds the files that are read and written for a program, in bytes. A
// line with such a file is within the line limit of either side.
const maxFile = 8 << 20

// errNotFound is the error code for files that do not exist.
const errNotFound = -32002

// inside returns path relative to the workspace.
func (p *peer) inside(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", acp.NewInvalidParams(map[string]any{"details": "the path is not absolute"})
	}
	rel, err := p.a.files.Rel(path)
	if err != nil {
		return "", fileRefusal(path, err)
	}
	return rel, nil
}

// fileRefusal returns the error for the program about a file.
func fileRefusal(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, workspace.ErrOutside):
		return acp.NewInvalidParams(map[string]any{"details": workspace.ErrOutside.Error(), "path": path})
	case errors.Is(err, fs.ErrNotExist):
		return &acp.RequestError{Code: errNotFound, Message: "Resource not found", Data: map[string]any{"path": path}}
	}
	return acp.NewInternalError(map[string]any{"details": err.Error(), "path": path})
}

// readFile serves fs/read_text_file.
func (p *peer) readFile(ctx context.Context, _ *run, params acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
	p.reading.Lock()
	context.AfterFunc(ctx, p.reading.Unlock) // ctx ends when the answer has been written
	if ctx.Err() != nil {
		return acp.ReadTextFileResponse{}, ctx.Err()
	}
	rel, err := p.inside(params.Path)
	if err != nil {
		return acp.ReadTextFileResponse{}, err
	}
	data, _, err := p.a.files.ReadFile(rel, maxFile)
	switch {
	case errors.Is(err, workspace.ErrNotRegular):
		err = errors.New("it is not a regular file")
	case errors.Is(err, workspace.ErrTooLarge):
		err = fmt.Errorf("it is longer than %d bytes", maxFile)
	case err == nil && bytes.IndexByte(data, 0) >= 0:
		err = errors.New("it is not text")
	}
	if err != nil {
		return acp.ReadTextFileResponse{}, fileRefusal(params.Path, err)
	}
	text := string(bytes.ToValidUTF8(data, []byte("\uFFFD")))
	return acp.ReadTextFileResponse{Content: window(text, params.Line, params.Limit)}, nil
}

// window returns limit lines of text from line on; lines count from 1.
func window(text string, line, limit *int) string {
	skip, most := 0, math.MaxInt
	if line != nil {
		skip = max(*line-1, 0)
	}
	if limit != nil {
		most = max(*limit, 0)
	}
	n, from, to := 0, 0, 0
	for l := range strings.Lines(text) {
		switch {
		case n < skip:
			from, to = from+len(l), to+len(l)
		case n-skip < most:
			to += len(l)
		}
		n++
	}
	return text[from:to]
}

// writing are the params of fs/write_text_file. The library's type refuses an
// empty content.
type writing struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
}

// writeFile serves fs/write_text_file.
func (p *peer) writeFile(_ context.Context, _ *run, params writing) (acp.WriteTextFileResponse, error) {
	var done acp.WriteTextFileResponse
	if params.Content == nil {
		return done, acp.NewInvalidParams(map[string]any{"details": "content is required"})
	}
	if len(*params.Content) > maxFile {
		return done, acp.NewInvalidParams(map[string]any{"details": fmt.Sprintf("content is longer than %d bytes", maxFile)})
	}
	rel, err := p.inside(params.Path)
	if err != nil {
		return done, err
	}
	return done, fileRefusal(params.Path, p.a.files.WriteFile(rel, []byte(*params.Content)))
}
