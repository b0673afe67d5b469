package notify

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// A push sends encrypted messages to the push service of a browser (RFC 8030, 8291, 8292).
type push struct {
	endpoint *url.URL
	browser  *ecdh.PublicKey
	auth     []byte
	key      *ecdsa.PrivateKey // of the server
	subject  string
}

const (
	maxEndpoint  = 2048
	authBytes    = 16
	pushTTL      = "86400" // s that the push service keeps a message
	tokenLife    = 12 * time.Hour
	recordSize   = 4096
	pushMaxBytes = 3072 // of a link, so that the message fits into one record
)

var base64URL = base64.RawURLEncoding

// newPush checks a subscription. Only with local may it be at an address that is not
// public, and without TLS.
func newPush(s *subscription, key *ecdsa.PrivateKey, subject string, local bool) (*push, error) {
	u, err := url.Parse(s.Endpoint)
	if err != nil || u.Host == "" || u.User != nil || len(s.Endpoint) > maxEndpoint ||
		u.Scheme != "https" && (!local || u.Scheme != "http") {
		return nil, errors.New("endpoint must be an https address")
	}
	point, err := base64URL.DecodeString(s.P256DH)
	if err != nil {
		return nil, errors.New("keys.p256dh must be base64url")
	}
	browser, err := ecdh.P256().NewPublicKey(point)
	if err != nil {
		return nil, errors.New("keys.p256dh must be a point of P-256")
	}
	auth, err := base64URL.DecodeString(s.Auth)
	if err != nil || len(auth) != authBytes {
		return nil, fmt.Errorf("keys.auth must be %d bytes in base64url", authBytes)
	}
	return &push{u, browser, auth, key, subject}, nil
}

func (p *push) request(ctx context.Context, m *notice, now time.Time) (*http.Request, error) {
	if len(m.link) > pushMaxBytes {
		return nil, errors.New("the link is too long for Web Push")
	}
	text, err := json.Marshal(map[string]string{"type": cmp.Or(m.event, "question.asked"), "link": m.link})
	if err != nil {
		return nil, err
	}
	body, err := p.encrypt(text)
	if err != nil {
		return nil, err
	}
	token, err := p.token(now)
	if err != nil {
		return nil, err
	}
	public, err := p.key.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	req, err := post(ctx, p.endpoint.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Content-Encoding", "aes128gcm")
	req.Header.Set("TTL", pushTTL)
	req.Header.Set("Urgency", "high")
	req.Header.Set("Topic", strings.TrimPrefix(m.ID, "msg_")) // 32 characters, the most that RFC 8030 allows
	req.Header.Set("Authorization", "vapid t="+token+", k="+base64URL.EncodeToString(public))
	return req, nil
}

// encrypt returns a message of one record (RFC 8291, section 3.4).
func (p *push) encrypt(text []byte) ([]byte, error) {
	ours, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	shared, err := ours.ECDH(p.browser)
	if err != nil {
		return nil, err
	}
	public := ours.PublicKey().Bytes()
	info := "WebPush: info\x00" + string(p.browser.Bytes()) + string(public)
	secret, err := hkdf.Key(sha256.New, shared, p.auth, info, 32)
	if err != nil {
		return nil, err
	}
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	key, err := hkdf.Key(sha256.New, secret, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, secret, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	out := binary.BigEndian.AppendUint32(salt, recordSize)
	out = append(append(out, byte(len(public))), public...)
	return gcm.Seal(out, nonce, append(text, 2), nil), nil // 2: the last record
}

// token returns the JWT that names the server to the push service (RFC 8292).
func (p *push) token(now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{
		"aud": p.endpoint.Scheme + "://" + p.endpoint.Host, "exp": now.Add(tokenLife).Unix(), "sub": p.subject,
	})
	if err != nil {
		return "", err
	}
	text := base64URL.EncodeToString([]byte(`{"typ":"JWT","alg":"ES256"}`)) + "." + base64URL.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, sum[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + base64URL.EncodeToString(signature), nil
}

// notPublic are global unicast addresses that do not lead to the internet, besides the
// private ones, or lead to other addresses.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("::/64"), netip.MustParsePrefix("fec0::/10"),
}

// checkPublic refuses addresses that are not public. Clients name the endpoints of push
// services, and must not reach the network of the server through them.
func checkPublic(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := to.Addr().Unmap()
	public := ip.IsGlobalUnicast() && !ip.IsPrivate()
	for _, prefix := range notPublic {
		public = public && !prefix.Contains(ip)
	}
	if !public {
		return errors.New("the endpoint has no public address")
	}
	return nil
}
