//go:build linux

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// tokenFort lets in who has the token.
func tokenFort(t *testing.T) *fort {
	t.Helper()
	f := startFort(t, patient("serve", "--listen", "127.0.0.1:0", "--idle-ttl", "0", "--state-dir", t.TempDir())...)
	key := f.keys["owner"]
	f.keys["nobody"] = "not-the-right-token-0123456789abcdefghijklmnop"
	f.keys["longer"], f.keys["shorter"], f.keys["first half"] = key+"x", key[:len(key)-1], key[:len(key)/2]
	f.settle("owner", "main", "other")
	return f
}

// openFort lets everybody in who is on this machine.
func openFort(t *testing.T) *fort {
	t.Helper()
	state := t.TempDir()
	f := startFort(t, patient("serve", "--listen", "127.0.0.1:0", "--auth", "off", "--idle-ttl", "0", "--state-dir", state)...)
	f.dirs = append(f.dirs, state)
	f.settle("", "main", "other")
	return f
}

const (
	issuer   = "https://issuer.example"
	audience = "maestro"
)

// jwtFort lets in whom an issuer vouches for: alice and mallory of one team, vic
// who only watches it, bea who is confined to its other session, and bob who has
// nothing to do with them.
func jwtFort(t *testing.T) *fort {
	t.Helper()
	f := startFort(t, patient("serve", "--listen", "127.0.0.1:0", "--idle-ttl", "0", "--state-dir", t.TempDir(),
		"--jwt-key", forge().file(t), "--jwt-issuer", issuer, "--jwt-audience", audience, "--jwt-scope-claim", "scope")...)
	for name, more := range map[string]claims{
		"alice": {"scope": "team"}, "mallory": {"scope": "team"}, "vic": {"scope": "team", "role": "viewer"},
		"bea": {"scope": "team", "session_id": "side"}, "bob": {},
	} {
		f.keys[name] = forge().token(name, more)
	}
	f.settle("alice", "plan", "side")
	f.want(shot{as: "bob", what: "POST /api/headless/sessions", body: `{"sessionId":"own","role":"viewer"}`})
	f.watch = append(f.watch, "bob", "owner")
	return f
}

// hostedFort is a runner that a control plane started.
func hostedFort(t *testing.T) *fort {
	t.Helper()
	workspace := t.TempDir()
	for _, dir := range []string{"inside", "inside/deep"} {
		if err := os.Mkdir(filepath.Join(workspace, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"out": "/etc", "up": "..", "root": "/", "loop": "loop", "deep": "inside/deep"} {
		if err := os.Symlink(target, filepath.Join(workspace, link)); err != nil {
			t.Fatal(err)
		}
	}
	f := startFort(t, patient("hosted-runner", "--listen", "127.0.0.1:0", "--runner-session-id", "mrs_41", "--workspace-root", workspace,
		"--owner-instance-id", "gen_9", "--require-owner-header", "--maestro-session-id", "plan", "--workspace-id", "ws_sentinel", "--agent-run-id", "run_sentinel",
		"--jwt-key", forge().file(t), "--jwt-issuer", issuer, "--attach-audience", "runner")...)
	f.dirs[0] = workspace
	f.always = []string{"X-Maestro-Owner-Instance-Id: gen_9"}
	f.keys["control"] = f.secretFile(f.ready.ControlTokenFile)
	for name, more := range map[string]claims{
		"alice": {"aud": "runner"}, "mallory": {"aud": audience}, "bea": {"aud": "runner", "session_id": "side"}, "vic": {"aud": "runner", "role": "viewer"},
	} {
		f.keys[name] = forge().token(name, more)
	}
	f.settle("owner", "plan", "plan")
	return f
}

type claims map[string]any

// A smithy signs tokens as the issuer does, and as others do.
type smithy struct {
	secret   []byte // of the issuer
	rsa      *rsa.PrivateKey
	ecdsa    *ecdsa.PrivateKey
	stranger *rsa.PrivateKey // nobody's
}

var forge = sync.OnceValue(func() *smithy {
	one, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	two, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	three, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return &smithy{[]byte("the-issuers-secret-0123456789abcdef"), one, three, two}
})

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// file is the key set of the issuer.
func (s *smithy) file(t *testing.T) string {
	t.Helper()
	point, err := s.ecdsa.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "oct", "kid": "hs", "alg": "HS256", "k": b64(s.secret)},
		{"kty": "RSA", "kid": "rs", "alg": "RS256", "n": b64(s.rsa.N.Bytes()), "e": "AQAB"},
		{"kty": "EC", "kid": "es", "alg": "ES256", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])},
	}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, set, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// good are the claims of a right token.
func good(sub string, more claims) claims {
	c := claims{"iss": issuer, "aud": audience, "sub": sub, "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range more {
		if value == nil {
			delete(c, name)
		} else {
			c[name] = value
		}
	}
	return c
}

// token is one that the issuer gives to sub.
func (s *smithy) token(sub string, more claims) string {
	return s.sign(claims{"alg": "HS256", "typ": "JWT", "kid": "hs"}, good(sub, more), s.secret)
}

// sign signs with a secret, with an RSA key, or not at all.
func (s *smithy) sign(header, body claims, key any) string {
	text := encoded(header) + "." + encoded(body)
	switch key := key.(type) {
	case []byte:
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return text + "." + b64(mac.Sum(nil))
	case *rsa.PrivateKey:
		sum := sha256.Sum256([]byte(text))
		signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		if err != nil {
			panic(err)
		}
		return text + "." + b64(signature)
	}
	return text + "."
}

func encoded(c claims) string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return b64(text)
}

// header is one with more in it.
func header(alg string, more claims) claims {
	h := claims{"alg": alg, "typ": "JWT"}
	maps.Copy(h, more)
	return h
}

// publicForms are the forms of the issuer's public key that a confused verifier
// could take for a secret.
func (s *smithy) publicForms() map[string][]byte {
	pkix, err := x509.MarshalPKIXPublicKey(&s.rsa.PublicKey)
	if err != nil {
		panic(err)
	}
	pkcs1 := x509.MarshalPKCS1PublicKey(&s.rsa.PublicKey)
	return map[string][]byte{
		"PKIX": pkix, "PKIX in PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkix}), "PKCS 1": pkcs1,
		"PKCS 1 in PEM": pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: pkcs1}), "modulus": s.rsa.N.Bytes(), "nothing": {},
		"modulus in base64": []byte(b64(s.rsa.N.Bytes())),
	}
}
