package mcp

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// pngHead is what every picture of that kind begins with.
const pngHead = "\x89PNG\r\n\x1a\n"

// Clients show results on terminals.
func TestResultsMoveNoCursor(t *testing.T) {
	hostile := "a\x1b]0;b\x07c\u009bd\r\n\te"
	const want = "a\uFFFD]0;b\uFFFDc\uFFFDd\r\n\te"
	if got := resultOf(&sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: hostile}}}).Text; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := failure("%s", hostile).Text; got != want {
		t.Errorf("got the failure %q, want %q", got, want)
	}
	if got := progressText(&sdk.ProgressNotificationParams{Progress: 1, Message: hostile}); got != "1: "+want {
		t.Errorf("got the progress %q, want %q", got, want)
	}
}

func TestEveryKindOfContentBecomesTextOrImages(t *testing.T) {
	got := resultOf(&sdk.CallToolResult{
		IsError: true,
		Content: []sdk.Content{
			&sdk.TextContent{Text: "one\n"},
			&sdk.TextContent{},
			&sdk.TextContent{Text: "two \xff"},
			&sdk.ImageContent{MIMEType: "image/png", Data: []byte(pngHead)},
			&sdk.ImageContent{MIMEType: "image/jpeg", Data: []byte(pngHead)},
			&sdk.ImageContent{MIMEType: "image/tiff", Data: []byte("tiff")},
			&sdk.AudioContent{MIMEType: "audio/wav", Data: []byte("wav")},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///a", MIMEType: "text/plain", Text: "inside"}},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///b", MIMEType: "image/gif", Blob: []byte("GIF89a")}},
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
			"one", "two \uFFFD", "[image image/jpeg, 8 bytes, is not what it is said to be]", "[image image/tiff, 4 bytes, is not of a kind that is shown]", "[audio audio/wav, 3 bytes, is not shown]",
			"[resource file:///a text/plain]", "inside", "[resource file:///c application/zip, 3 bytes, is not of a kind that is shown]",
			"[link to the resource file:///d, d, many lines]", "[content of an unknown kind is not shown]",
		}, "\n"),
		Images: []Image{{"image/png", []byte(pngHead)}, {"image/gif", []byte("GIF89a")}},
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
	picture := slices.Concat([]byte(pngHead), make([]byte, 1<<20))
	for range maxImages + 2 {
		blocks = append(blocks, &sdk.ImageContent{MIMEType: "image/png", Data: picture})
	}
	got := resultOf(&sdk.CallToolResult{Content: blocks, StructuredContent: strings.Repeat("x", maxStructured)})
	if len(got.Text) > maxResultText || !utf8.ValidString(got.Text) || !strings.HasSuffix(got.Text, "\n[the rest is too long to be shown]") {
		t.Errorf("got a text of %d bytes that ends in %q, want at most %d and a note", len(got.Text), got.Text[len(got.Text)-50:], maxResultText)
	}
	if len(got.Images) != maxImages {
		t.Errorf("got %d images, want %d", len(got.Images), maxImages)
	}
	big := &sdk.ImageContent{MIMEType: "image/png", Data: append([]byte(pngHead), make([]byte, maxImageBytes-len(pngHead))...)}
	got = resultOf(&sdk.CallToolResult{Content: []sdk.Content{big, big, big}})
	if len(got.Images) != 2 || !strings.Contains(got.Text, "too large or one too many") {
		t.Errorf("got %d images, %q; want two and a note", len(got.Images), got.Text)
	}
}
