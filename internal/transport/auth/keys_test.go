package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Key pairs that take a while to make, once for all tests.
var (
	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return newRSA(minModulus) })
	otherRSA = sync.OnceValue(func() *rsa.PrivateKey { return newRSA(minModulus) })
	ecKey    = sync.OnceValue(func() *ecdsa.PrivateKey { return newEC(elliptic.P256()) })
	otherEC  = sync.OnceValue(func() *ecdsa.PrivateKey { return newEC(elliptic.P256()) })
)

const secretKey = "a secret of an issuer, of more than 32 bytes"

func newRSA(bits int) *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return k
}

func newEC(c elliptic.Curve) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

func publicDER(k crypto.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(k)
	if err != nil {
		panic(err)
	}
	return der
}

func publicPEM(k crypto.PublicKey) string { return pemOf("PUBLIC KEY", publicDER(k)) }

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// webKeyOf describes a public key, or a secret, as a JSON Web Key. Members
// replace those it would have.
func webKeyOf(k any, members map[string]string) map[string]string {
	w := map[string]string{}
	switch k := k.(type) {
	case *rsa.PublicKey:
		w = map[string]string{"kty": "RSA", "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			panic(err)
		}
		w = map[string]string{"kty": "EC", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])}
	case string:
		w = map[string]string{"kty": "oct", "k": b64([]byte(k))}
	}
	maps.Copy(w, members)
	return w
}

func keySet(keys ...map[string]string) string {
	b, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// writeFile makes a file with a mode that the umask does not change.
func writeFile(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadKeys(t *testing.T, content string) *Keys {
	t.Helper()
	k, err := LoadKeys(writeFile(t, content, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeysAreLoaded(t *testing.T) {
	for _, tt := range []struct {
		name, content string
		mode          os.FileMode
		algs          string
	}{
		{"RSA", publicPEM(&rsaKey().PublicKey), 0o644, "RS256"},
		{"old RSA form", pemOf("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)), 0o644, "RS256"},
		{"ECDSA", publicPEM(&ecKey().PublicKey), 0o644, "ES256"},
		{"two, after a remark", "For tests.\n" + publicPEM(&rsaKey().PublicKey) + "\n" + publicPEM(&ecKey().PublicKey), 0o644, "RS256 ES256"},
		{"secret", secretKey + "\n", 0o600, "HS256"},
		{"binary secret", strings.Repeat("\x00\xff", 16), 0o600, "HS256"},
		{"set", keySet(webKeyOf(&rsaKey().PublicKey, nil), webKeyOf(&ecKey().PublicKey, nil)), 0o644, "RS256 ES256"},
		{"set with a secret", keySet(webKeyOf(secretKey, nil)), 0o600, "HS256"},
		{"set with strangers", keySet(webKeyOf(&rsaKey().PublicKey, map[string]string{"use": "enc"}), webKeyOf(&rsaKey().PublicKey, map[string]string{"alg": "PS256"}),
			webKeyOf(&ecKey().PublicKey, map[string]string{"crv": "P-521"}), map[string]string{"kty": "OKP"},
			webKeyOf(&ecKey().PublicKey, map[string]string{"use": "sig", "alg": "ES256"})), 0o644, "ES256"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			keys, err := LoadKeys(writeFile(t, tt.content, tt.mode))
			if err != nil {
				t.Fatal(err)
			}
			var algs []string
			for _, k := range keys.list {
				algs = append(algs, k.alg)
			}
			if got := strings.Join(algs, " "); got != tt.algs {
				t.Errorf("got %q, want %q", got, tt.algs)
			}
		})
	}
}

func TestUnfitKeyFileIsRefused(t *testing.T) {
	public := &rsaKey().PublicKey
	der := publicDER(public)
	many := make([]map[string]string, maxKeys+1)
	for i := range many {
		many[i] = webKeyOf(&ecKey().PublicKey, nil)
	}
	cert, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)},
		&x509.Certificate{}, public, rsaKey())
	if err != nil {
		t.Fatal(err)
	}
	ended, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(append(make([]byte, 31), '\n')))
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(ecKey())
	if err != nil {
		t.Fatal(err)
	}
	offCurve := webKeyOf(&ecKey().PublicKey, nil)
	offCurve["x"] = b64(make([]byte, 32))
	for _, tt := range []struct {
		name, content string
		mode          os.FileMode
		want          string
	}{
		{"empty", "", 0o600, "at least 32 bytes"},
		{"short secret", strings.Repeat("x", 31), 0o600, "at least 32 bytes"},
		{"secret that is short but for newlines", strings.Repeat("x", 31) + "\r\n\n\n", 0o600, "at least 32 bytes"},
		{"secret for all", secretKey, 0o644, "can be read by others"},
		{"set with a secret for all", keySet(webKeyOf(secretKey, nil)), 0o604, "can be read by others"},
		{"large", strings.Repeat("x", maxKeyFile+1), 0o600, "larger than"},

		// A public key that were taken for a secret would let everybody sign.
		{"DER", string(der), 0o600, "must be PEM"},
		{"DER that ends with a newline", string(ended), 0o600, "must be PEM"},
		{"DER that ends with a newline, before another", string(ended) + "\r\n", 0o600, "must be PEM"},
		{"DER in base64", base64.StdEncoding.EncodeToString(der) + "\n", 0o600, "must be PEM"},
		{"certificate as DER", string(cert), 0o600, "must be PEM"},
		{"PKCS 1 as DER", string(x509.MarshalPKCS1PublicKey(public)), 0o600, "must be PEM"},
		{"OpenSSH", "ssh-rsa " + base64.StdEncoding.EncodeToString(der), 0o600, "must be PEM"},
		{"RFC 4716", "---- BEGIN SSH2 PUBLIC KEY ----\n" + base64.StdEncoding.EncodeToString(der), 0o600, "must be PEM"},

		{"private key", pemOf("PRIVATE KEY", private), 0o600, "want PUBLIC KEY"},
		{"certificate", pemOf("CERTIFICATE", cert), 0o600, "want PUBLIC KEY"},
		{"broken PEM", strings.Replace(publicPEM(public), "-----END", "-----and", 1), 0o600, "malformed PEM"},
		{"broken PEM before a good one", strings.Replace(publicPEM(public), "MIIB", "M!!B", 1) + publicPEM(public), 0o600, "malformed PEM"},
		{"PEM of nothing", pemOf("PUBLIC KEY", []byte("nothing")), 0o600, "asn1"},
		{"weak RSA", publicPEM(&rsa.PublicKey{N: new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 1023), big.NewInt(1)), E: 65537}), 0o600, "at least 2048 bits"},
		{"even exponent", publicPEM(&rsa.PublicKey{N: public.N, E: 4}), 0o600, "at least 2048 bits"},
		{"another curve", publicPEM(&newEC(elliptic.P384()).PublicKey), 0o600, "P-256"},

		{"broken set", `{"keys":[`, 0o600, "malformed"},
		{"set without keys", `{"keys":[]}`, 0o600, "no key"},
		{"one key, no set", `{"kty":"RSA"}`, 0o600, "no key"},
		{"set of keys for others", keySet(webKeyOf(public, map[string]string{"alg": "HS256"})), 0o600, "no key"},
		{"set with a private key", keySet(webKeyOf(public, map[string]string{"d": "AQ"})), 0o600, "private key"},
		{"set with a weak secret", keySet(webKeyOf("weak", nil)), 0o600, "at least 32 bytes"},
		{"set with a weak RSA key", keySet(webKeyOf(public, map[string]string{"n": b64(make([]byte, 128))})), 0o600, "at least 2048 bits"},
		{"set with a huge exponent", keySet(webKeyOf(public, map[string]string{"e": b64([]byte("12345"))})), 0o600, "malformed RSA"},
		{"set with a point off the curve", keySet(offCurve), 0o600, "malformed ECDSA"},
		{"set with a short point", keySet(webKeyOf(&ecKey().PublicKey, map[string]string{"x": "AQ"})), 0o600, "malformed ECDSA"},
		{"too many keys", keySet(many...), 0o600, "more than 16"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if keys, err := LoadKeys(writeFile(t, tt.content, tt.mode)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v, want an error with %q", keys, err, tt.want)
			} else if strings.Contains(fmt.Sprint(err), secretKey) {
				t.Errorf("the text shows the secret: %v", err)
			}
		})
	}
	if _, err := LoadKeys(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no file: got keys, want an error")
	}
}
