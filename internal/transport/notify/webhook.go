package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A webhook posts JSON with a signature of Standard Webhooks.
type webhook struct {
	url string
	key []byte
}

func newWebhook(r Receiver) (*webhook, error) {
	text, ok := strings.CutPrefix(r.Secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("secret must be whsec_ and 24 to 64 bytes in base64")
	}
	return &webhook{r.URL, key}, nil
}

func (w *webhook) request(ctx context.Context, m *notice, now time.Time) (*http.Request, error) {
	type data struct {
		SessionID   string `json:"session_id"`
		RequestID   string `json:"request_id"`
		RequestType string `json:"request_type"`
		Link        string `json:"link"`
	}
	body, err := json.Marshal(struct {
		Type      string `json:"type"`
		Timestamp string `json:"timestamp"`
		Data      data   `json:"data"`
	}{"question.asked", now.UTC().Format(time.RFC3339), data{m.Session, m.Request, string(m.Kind), m.link}})
	if err != nil {
		return nil, err
	}
	req, err := post(ctx, w.url, body)
	if err != nil {
		return nil, err
	}
	at := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, w.key)
	mac.Write([]byte(m.ID + "." + at + "."))
	mac.Write(body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", m.ID)
	req.Header.Set("Webhook-Timestamp", at)
	req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return req, nil
}
