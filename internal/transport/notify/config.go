package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
)

// A Config is the content of the file that configures notifications.
type Config struct {
	// Link is the link of each notification. {session} and {request} stand for the ids of
	// the question.
	Link      string     `json:"link"`
	Receivers []Receiver `json:"receivers"`
	WebPush   *WebPush   `json:"web_push"` // nil: browsers cannot subscribe
}

// WebPush configures notifications to browsers.
type WebPush struct {
	Subject string `json:"subject"` // contact of the operator for push services: a mailto: or https: address
	Local   bool   `json:"local"`   // also allow push services at addresses that are not public, and without TLS
}

// A Receiver is told of the questions of one scope.
type Receiver struct {
	Name          string `json:"name"`
	Kind          string `json:"kind"` // webhook or ntfy
	URL           string `json:"url"`
	Secret        string `json:"secret"`         // webhook: whsec_ and 24 to 64 bytes in base64
	Token         string `json:"token"`          // ntfy: access token; empty for none
	Scope         string `json:"scope"`          // whose questions; empty: the owner's
	QuietHours    string `json:"quiet_hours"`    // such as 22:00-07:00; notifications wait until the end
	TimeZone      string `json:"time_zone"`      // of the quiet hours; default: the server's
	UnlessLooking string `json:"unless_looking"` // id of a principal; nothing is sent while it follows the inbox
}

const (
	maxConfig    = 256 << 10 // bytes
	maxReceivers = 32
)

// LoadConfig reads a configuration. It refuses unknown keys.
func LoadConfig(path string) (c Config, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if len(text) > maxConfig {
		return c, fmt.Errorf("%s is longer than %d bytes", path, maxConfig)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if d.More() {
		return c, fmt.Errorf("%s has more than one JSON text", path)
	}
	return c, c.check()
}

func (c *Config) check() error {
	if c.Link == "" {
		return errors.New("link is missing")
	}
	if len(c.Receivers) > maxReceivers {
		return fmt.Errorf("more than %d receivers", maxReceivers)
	}
	if p := c.WebPush; p != nil && !strings.HasPrefix(p.Subject, "mailto:") && !strings.HasPrefix(p.Subject, "https://") {
		return errors.New("web_push.subject must be a mailto: or https: address")
	}
	names := map[string]bool{}
	for _, r := range c.Receivers {
		if r.Name == "" || names[r.Name] {
			return fmt.Errorf("receiver %q: each receiver needs a name of its own", r.Name)
		}
		names[r.Name] = true
	}
	return nil
}

func newTarget(r Receiver) (target, error) {
	if u, err := url.Parse(r.URL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("url must be an http or https address")
	}
	switch r.Kind {
	case "webhook":
		return newWebhook(r)
	case "ntfy":
		return &ntfy{r.URL, r.Token}, nil
	}
	return nil, fmt.Errorf("unknown kind %q", r.Kind)
}

// quietHours are a time of each day. The zero value is no time.
type quietHours struct {
	from, to time.Duration // since midnight; from > to: over midnight
	zone     *time.Location
}

func parseQuiet(text, zone string) (q quietHours, err error) {
	if text == "" {
		return q, nil
	}
	q.zone = time.Local
	if zone != "" {
		if q.zone, err = time.LoadLocation(zone); err != nil {
			return q, fmt.Errorf("time_zone: %w", err)
		}
	}
	var fromHour, fromMinute, toHour, toMinute int
	n, err := fmt.Sscanf(text+"\n", "%2d:%2d-%2d:%2d\n", &fromHour, &fromMinute, &toHour, &toMinute)
	if n != 4 || err != nil || min(fromHour, fromMinute, toHour, toMinute) < 0 ||
		max(fromHour, toHour) > 23 || max(fromMinute, toMinute) > 59 {
		return q, fmt.Errorf("quiet_hours must be like 22:00-07:00, got %q", text)
	}
	q.from = time.Duration(fromHour)*time.Hour + time.Duration(fromMinute)*time.Minute
	q.to = time.Duration(toHour)*time.Hour + time.Duration(toMinute)*time.Minute
	return q, nil
}

// left returns how long the quiet hours still last, or zero outside of them.
func (q quietHours) left(now time.Time) time.Duration {
	if q.zone == nil || q.from == q.to {
		return 0
	}
	now = now.In(q.zone)
	year, month, day := now.Date()
	hours, minutes, seconds := now.Clock()
	clock := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute + time.Duration(seconds)*time.Second
	quiet := q.from < q.to && clock >= q.from && clock < q.to ||
		q.from > q.to && (clock >= q.from || clock < q.to)
	if !quiet {
		return 0
	}
	if clock >= q.to {
		day++
	}
	end := time.Date(year, month, day, int(q.to/time.Hour), int(q.to%time.Hour/time.Minute), 0, 0, q.zone)
	return max(end.Sub(now), time.Second)
}
