package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// Bounds of a result, in bytes or images.
const (
	maxResultText  = 256 << 10
	maxStructured  = 256 << 10
	maxImages      = 8
	maxImageBytes  = 5 << 20
	maxImagesBytes = 10 << 20
	maxLabel       = 256 // bytes of a server's text about content that is not shown
)

// imageTypes are the image types that models accept.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// A Result is a tool's answer in a form for models.
type Result struct {
	// Text is all content that is text, at most 256 KiB, or the structured
	// content if there is no other. It mentions content that was left out, such
	// as audio.
	Text string

	// Images are at most eight images of the types that models accept.
	Images []Image

	// IsError says that the tool failed, or that the server refused the call or
	// did not answer in time. The model may react to it.
	IsError bool
}

// An Image is an image.
type Image struct {
	MimeType string
	Data     []byte
}

// failure returns the result of a call that failed.
func failure(format string, args ...any) Result {
	return Result{Text: abridge.Head(clean(fmt.Sprintf(format, args...)), maxResultText), IsError: true}
}

// resultOf converts a server's result.
func resultOf(answer *sdk.CallToolResult) Result {
	var p page
	for _, block := range answer.Content {
		p.add(block)
	}
	if answer.StructuredContent != nil {
		text, err := json.Marshal(answer.StructuredContent)
		switch {
		case err != nil || len(text) > maxStructured:
			p.say("[structured content, %d bytes, is too long to be shown]", len(text))
		case len(answer.Content) == 0:
			p.text(string(text))
		}
	}
	return Result{Text: p.b.String(), Images: p.images, IsError: answer.IsError}
}

// A page collects the text and the images of a result.
type page struct {
	b      strings.Builder
	full   bool
	images []Image
	bytes  int // of images
}

func (p *page) add(block sdk.Content) {
	switch c := block.(type) {
	case *sdk.TextContent:
		p.text(c.Text)
	case *sdk.ImageContent:
		p.image(c.MIMEType, c.Data, "image")
	case *sdk.AudioContent:
		p.say("[audio %s, %d bytes, is not shown]", label(c.MIMEType), len(c.Data))
	case *sdk.EmbeddedResource:
		switch r := c.Resource; {
		case r == nil:
		case r.Text != "" || r.Blob == nil:
			p.say("[resource %s %s]", label(r.URI), label(r.MIMEType))
			p.text(r.Text)
		default:
			p.image(r.MIMEType, r.Blob, "resource "+label(r.URI))
		}
	case *sdk.ResourceLink:
		text := "[link to the resource " + label(c.URI)
		for _, more := range []string{c.Title, c.Name, c.MIMEType, c.Description} {
			if more != "" {
				text += ", " + label(more)
			}
		}
		p.text(text + "]")
	default:
		p.say("[content of an unknown kind is not shown]")
	}
}

// text appends a block on separate lines, as far as there is room.
func (p *page) text(text string) {
	if p.full || text == "" {
		return
	}
	text = clean(text)
	if p.b.Len() > 0 && !strings.HasSuffix(p.b.String(), "\n") {
		p.b.WriteByte('\n')
	}
	if room := maxResultText - p.b.Len(); len(text) > room {
		p.full = true
		const note = "\n[the rest is too long to be shown]"
		text = abridge.Head(text, max(room-len(note), 0)) + note
	}
	p.b.WriteString(text)
}

func (p *page) say(format string, args ...any) { p.text(fmt.Sprintf(format, args...)) }

func (p *page) image(mimeType string, data []byte, from string) {
	switch {
	case !slices.Contains(imageTypes, mimeType):
		p.say("[%s %s, %d bytes, is not of a kind that is shown]", from, label(mimeType), len(data))
	case http.DetectContentType(data) != mimeType: // models refuse a whole message with a mislabeled image
		p.say("[%s %s, %d bytes, is not what it is said to be]", from, mimeType, len(data))
	case len(data) > maxImageBytes || p.bytes+len(data) > maxImagesBytes || len(p.images) >= maxImages:
		p.say("[%s %s, %d bytes, is too large or one too many to be shown]", from, label(mimeType), len(data))
	default:
		p.images = append(p.images, Image{MimeType: mimeType, Data: data})
		p.bytes += len(data)
	}
}

// clean returns a text as valid UTF-8 without terminal controls.
func clean(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && !strings.ContainsRune("\n\r\t", c) {
			return '\uFFFD'
		}
		return c
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// label returns a short text of a server on one line, without characters that
// move a terminal's cursor.
func label(text string) string {
	words := strings.FieldsFunc(abridge.Head(strings.ToValidUTF8(text, "\uFFFD"), 4*maxLabel), func(c rune) bool { return !unicode.IsGraphic(c) || unicode.IsSpace(c) })
	return abridge.Head(strings.Join(words, " "), maxLabel)
}
