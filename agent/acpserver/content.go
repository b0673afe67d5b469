package acpserver

import (
	"errors"
	"net/url"
	"path"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
)

// promptOf converts the editor's prompt. Embedded texts become fenced blocks
// with the name of their file. A link to an image becomes an attachment, and
// any other link becomes its name.
func promptOf(blocks []acp.ContentBlock) (*contracts.Prompt, error) {
	cmd := &contracts.Prompt{}
	var parts []string
	for _, b := range blocks {
		switch {
		case b.Text != nil:
			parts = append(parts, b.Text.Text)
		case b.ResourceLink != nil:
			name, place, local := nameOfURI(b.ResourceLink.Uri)
			if local && isImage(name) {
				cmd.Attachments = append(cmd.Attachments, name)
			}
			parts = append(parts, "@"+name+place)
		case b.Resource != nil && b.Resource.Resource.TextResourceContents != nil:
			r := b.Resource.Resource.TextResourceContents
			name, place, _ := nameOfURI(r.Uri)
			parts = append(parts, "\n\n"+name+place+":\n"+fenced("", r.Text)+"\n")
		case b.Image != nil:
			return nil, errors.New("images cannot be sent from here: save it in the workspace and link to the file")
		default:
			return nil, errors.New("a prompt can have text, links to files, and texts of files")
		}
	}
	cmd.Content = strings.Join(parts, "")
	if strings.TrimSpace(cmd.Content) == "" {
		return nil, errors.New("the prompt is empty")
	}
	if len(cmd.Attachments) > contracts.MaxAttachments {
		return nil, errors.New("the prompt links to too many images")
	}
	return cmd, nil
}

// nameOfURI returns the path of a file URI and the position in it, such as
// #L3-5. Other URIs are returned unchanged.
func nameOfURI(uri string) (name, place string, local bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return uri, "", false
	}
	if u.Fragment != "" {
		place = "#" + u.Fragment
	}
	return u.Path, place, true
}

// isImage reports whether a path is that of an image that servers can load.
func isImage(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".jpeg", ".jpg", ".png", ".webp", ".gif":
		return true
	}
	return false
}
