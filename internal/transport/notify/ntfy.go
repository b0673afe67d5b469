package notify

import (
	"context"
	"net/http"
	"time"
)

// An ntfy posts to a topic of an ntfy server, or of one that is compatible.
type ntfy struct{ url, token string }

func (n *ntfy) request(ctx context.Context, m *notice, _ time.Time) (*http.Request, error) {
	req, err := post(ctx, n.url, []byte("A session waits for an answer."))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	req.Header.Set("Title", "Maestro")
	req.Header.Set("Click", m.link)
	req.Header.Set("Tags", "question")
	req.Header.Set("X-Sequence-Id", m.ID)
	if n.token != "" {
		req.Header.Set("Authorization", "Bearer "+n.token)
	}
	return req, nil
}
