package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	cookieFileVersion = 1
	maxCookieFile     = 8 << 20 // bytes; far more than maxCookies cookies need
)

// cookies are the valid cookies. A file keeps them across restarts.
type cookies struct {
	passes

	// Static.
	path        string // empty keeps them in memory
	credentials string // what they were made with; other credentials end them
	log         *slog.Logger

	saving sync.Mutex // held while the file is written
}

// A cookieFile is the content of the file. It has the hashes of the cookies, so that a
// reader of the file cannot use them.
type cookieFile struct {
	Version     int            `json:"version"`
	Credentials string         `json:"credentials"`
	Cookies     []storedCookie `json:"cookies"` // the oldest first
}

type storedCookie struct {
	SHA256  string              `json:"sha256"`
	Holder  contracts.Principal `json:"holder"`
	Expires time.Time           `json:"expires"`
}

// credentials returns a text that changes with the token, and with what the server
// requires of a JWT.
func (g *Authenticator) credentials(opts Options) string {
	h := sha256.New()
	if g.token != nil {
		h.Write(g.token[:])
	}
	if opts.Keys != nil {
		_, _ = fmt.Fprintf(h, "%x %q %q %q", opts.Keys.sum, opts.Issuer, opts.Audience, opts.ScopeClaim)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// openCookies reads the valid cookies from the file. A file that is not understood is
// an error: otherwise a cookie could return that its user has ended.
func openCookies(opts Options, credentials string) (*cookies, error) {
	c := &cookies{passes: newPasses(cookieTTL, maxCookies), path: opts.CookieFile, credentials: credentials, log: opts.Log}
	var file cookieFile
	found, err := readStored("cookie file", c.path, maxCookieFile, &file)
	if !found || err != nil {
		return c, err
	}
	if file.Version != cookieFileVersion || len(file.Cookies) > maxCookies {
		return nil, fmt.Errorf("cookie file %s: version %d with %d cookies is not understood", c.path, file.Version, len(file.Cookies))
	}
	if file.Credentials != credentials {
		return c, nil
	}
	for i, one := range file.Cookies {
		hash, err := hex.DecodeString(one.SHA256)
		if err != nil || len(hash) != sha256.Size || one.Holder.ID == "" {
			return nil, fmt.Errorf("cookie file %s: cookie %d is malformed", c.path, i)
		}
		if made := (&pass{key: [sha256.Size]byte(hash), holder: one.Holder, expires: one.Expires}); opts.Now().Before(made.expires) {
			c.byKey[made.key] = c.order.PushBack(made)
		}
	}
	return c, nil
}

// save writes the cookies to the file.
func (c *cookies) save() error {
	if c.path == "" {
		return nil
	}
	c.saving.Lock()
	defer c.saving.Unlock()
	file := cookieFile{Version: cookieFileVersion, Credentials: c.credentials, Cookies: []storedCookie{}}
	c.mu.Lock()
	for e := c.order.Front(); e != nil; e = e.Next() {
		one := e.Value.(*pass)
		file.Cookies = append(file.Cookies, storedCookie{hex.EncodeToString(one.key[:]), one.holder, one.expires.UTC()})
	}
	c.mu.Unlock()
	if err := writeStored("cookie file", c.path, file); err != nil {
		c.log.Error("cookies cannot be kept", "err", err)
		return &contracts.Error{
			Code: contracts.CodeRuntimeNotReady, Message: "cookies cannot be kept: the server's disk is full or cannot be written to",
		}
	}
	return nil
}
