package mcp

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestEveryKindOfContentBecomesTextOrImages(t *testing.T) {
	got := resultOf(&sdk.CallToolResult{
		IsError: true,
		Content: []sdk.Content{
			&sdk.TextContent{Text: "one\n"},
			&sdk.TextContent{},
			&sdk.TextContent{Text: "two \xff"},
			&sdk.ImageContent{MIMEType: "image/png", Data: []byte("png")},
			&sdk.ImageContent{MIMEType: "image/tiff", Data: []byte("tiff")},
			&sdk.AudioContent{MIMEType: "audio/wav", Data: []byte("wav")},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///a", MIMEType: "text/plain", Text: "inside"}},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///b", MIMEType: "image/gif", Blob: []byte("gif")}},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///c", MIMEType: "application/zip", Blob: []byte("zip")}},
			&sdk.EmbeddedResource{},
			&sdk.ResourceLink{URI: "file:///d", Name: "d", Description: "many\nlines"},
			nil,
		},
		StructuredContent: map[string]any{"a": 1},
	})
	want := Result{
		IsError: true,
		Text: strings.Join([]string{
			"one", "two \uFFFD", "[image image/tiff, 4 bytes, is not of a kind that is shown]", "[audio audio/wav, 3 bytes, is not shown]",
			"[resource file:///a text/plain]", "inside", "[resource file:///c application/zip, 3 bytes, is not of a kind that is shown]",
			"[link to the resource file:///d, d, many lines]", "[content of an unknown kind is not shown]",
		}, "\n"),
		Images:     []Image{{"image/png", []byte("png")}, {"image/gif", []byte("gif")}},
		Structured: []byte(`{"a":1}`),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := resultOf(&sdk.CallToolResult{StructuredContent: []any{1}}); got.Text != "[1]" {
		t.Errorf("got %q, want the structured content as text", got.Text)
	}
}

func TestResultsAreBounded(t *testing.T) {
	var blocks []sdk.Content
	for range 3 {
		blocks = append(blocks, &sdk.TextContent{Text: strings.Repeat("ä", maxResultText/3)})
	}
	picture := bytes.Repeat([]byte("x"), 1<<20)
	for range maxImages + 2 {
		blocks = append(blocks, &sdk.ImageContent{MIMEType: "image/png", Data: picture})
	}
	got := resultOf(&sdk.CallToolResult{Content: blocks, StructuredContent: strings.Repeat("x", maxStructured)})
	if len(got.Text) > maxResultText || !utf8.ValidString(got.Text) || !strings.HasSuffix(got.Text, "\n[the rest is too long to be shown]") {
		t.Errorf("got a text of %d bytes that ends in %q, want at most %d and a note", len(got.Text), got.Text[len(got.Text)-50:], maxResultText)
	}
	if len(got.Images) != maxImages || got.Structured != nil {
		t.Errorf("got %d images, structured content of %d bytes; want %d and none", len(got.Images), len(got.Structured), maxImages)
	}
	big := &sdk.ImageContent{MIMEType: "image/png", Data: bytes.Repeat([]byte("x"), maxImageBytes)}
	got = resultOf(&sdk.CallToolResult{Content: []sdk.Content{big, big, big}})
	if len(got.Images) != 2 || !strings.Contains(got.Text, "too large or one too many") {
		t.Errorf("got %d images, %q; want two and a note", len(got.Images), got.Text)
	}
}
