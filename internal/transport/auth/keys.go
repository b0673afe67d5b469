package auth

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

const (
	maxKeyFile = 64 << 10 // bytes
	maxKeys    = 16       // a token without a key id is tried with each key
	minSecret  = 32       // bytes
	minModulus = 2048     // bits
)

// The algorithms, as JWTs name them. Each key is for one of them.
const (
	algHMAC  = "HS256"
	algRSA   = "RS256"
	algECDSA = "ES256"
)

// Keys verify JWTs. They are immutable.
type Keys struct {
	list []verifyKey       // at least one, at most maxKeys
	sum  [sha256.Size]byte // of the file
}

// A verifyKey has the type that its algorithm requires: []byte, *rsa.PublicKey
// or *ecdsa.PublicKey. A token cannot choose between the types.
type verifyKey struct {
	id  string // empty if the file does not name it
	alg string
	key any
}

// LoadKeys returns the keys in the file at path. The file contains one of:
//
//   - public keys as PEM: RSA with at least 2,048 bits or ECDSA on P-256;
//   - a JSON Web Key Set of such keys and of secrets, at most 16;
//   - a secret for HMAC with SHA-256: at least 32 bytes, the whole file except
//     newlines at its end.
//
// A file with a secret must not be readable by other users.
func LoadKeys(path string) (*Keys, error) {
	b, shared, err := readFile("key file", path, maxKeyFile+1)
	if err != nil {
		return nil, err
	}
	if len(b) > maxKeyFile {
		return nil, fmt.Errorf("key file %s is larger than %d bytes", path, maxKeyFile)
	}
	keys, err := parseKeys(b)
	if err == nil && slices.ContainsFunc(keys.list, func(k verifyKey) bool { return k.alg == algHMAC }) {
		err = shared
	}
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	return keys, nil
}

func parseKeys(b []byte) (*Keys, error) {
	var list []verifyKey
	var err error
	switch text := bytes.TrimSpace(b); {
	case bytes.Contains(text, []byte("-----BEGIN ")):
		list, err = parsePEM(text)
	case bytes.HasPrefix(text, []byte("{")):
		list, err = parseSet(text)
	default:
		list, err = parseSecret(b)
	}
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, errors.New("no key that can be used")
	case len(list) > maxKeys:
		return nil, fmt.Errorf("more than %d keys", maxKeys)
	}
	return &Keys{list, sha256.Sum256(b)}, nil
}

// parseSecret parses b as a secret. It refuses a public key in an unsupported
// form: anybody could sign with a public key used as a secret.
func parseSecret(b []byte) ([]verifyKey, error) {
	secret := bytes.TrimRight(b, "\r\n")
	der := secret
	if decoded, err := base64.StdEncoding.DecodeString(string(bytes.Join(bytes.Fields(secret), nil))); err == nil {
		der = decoded
	}
	var whole asn1.RawValue
	_, _ = asn1.Unmarshal(b, &whole) // a key whose last byte is a newline is cut in secret
	for _, form := range [][]byte{whole.FullBytes, secret, der} {
		_, errKey := x509.ParsePKIXPublicKey(form)
		_, errRSA := x509.ParsePKCS1PublicKey(form)
		_, errCert := x509.ParseCertificate(form)
		if errKey == nil || errRSA == nil || errCert == nil {
			return nil, errors.New("a public key must be PEM or a JSON Web Key")
		}
	}
	for _, prefix := range []string{"ssh-", "ecdsa-", "sk-", "---- BEGIN "} {
		if bytes.HasPrefix(secret, []byte(prefix)) {
			return nil, errors.New("a public key must be PEM or a JSON Web Key")
		}
	}
	if len(secret) < minSecret {
		return nil, fmt.Errorf("a secret has at least %d bytes", minSecret)
	}
	return []verifyKey{{alg: algHMAC, key: secret}}, nil
}

func parsePEM(text []byte) ([]verifyKey, error) {
	blocks := bytes.Count(text, []byte("-----BEGIN "))
	var list []verifyKey
	for range min(blocks, maxKeys+1) {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("malformed PEM")
		}
		text = rest
		var public any
		var err error
		switch block.Type {
		case "PUBLIC KEY":
			public, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			public, err = x509.ParsePKCS1PublicKey(block.Bytes)
		default:
			err = fmt.Errorf("a PEM block is %q, want PUBLIC KEY", block.Type)
		}
		if err != nil {
			return nil, err
		}
		k, err := publicKey("", public)
		if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	return list, nil
}

// publicKey returns the key with its algorithm. It refuses weak keys and other
// types.
func publicKey(id string, public any) (verifyKey, error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minModulus || k.E < 3 || k.E%2 == 0 {
			return verifyKey{}, fmt.Errorf("an RSA key has at least %d bits", minModulus)
		}
		return verifyKey{id, algRSA, k}, nil
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return verifyKey{}, errors.New("an ECDSA key is on P-256")
		}
		return verifyKey{id, algECDSA, k}, nil
	}
	return verifyKey{}, errors.New("a key is for RSA or ECDSA")
}

// A webKey is a JSON Web Key (RFC 7517).
type webKey struct {
	Kty, Kid, Alg, Use string
	N, E               string // RSA
	Crv, X, Y          string // EC
	K                  string // secret
	D                  string // private; must be absent
}

// parseSet returns the keys of a set that verify with a supported algorithm. It
// ignores other keys.
func parseSet(text []byte) ([]verifyKey, error) {
	var set struct{ Keys []webKey }
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("malformed JSON Web Key Set") // the text of err could show a secret
	}
	var list []verifyKey
	for _, w := range set.Keys {
		if w.D != "" {
			return nil, errors.New("a private key, want the public one")
		}
		if alg := map[string]string{"RSA": algRSA, "EC": algECDSA, "oct": algHMAC}[w.Kty]; alg == "" ||
			w.Alg != "" && w.Alg != alg || w.Use != "" && w.Use != "sig" || w.Kty == "EC" && w.Crv != "P-256" {
			continue
		}
		k, err := w.verifyKey()
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", w.Kid, err)
		}
		list = append(list, k)
	}
	return list, nil
}

func (w *webKey) verifyKey() (verifyKey, error) {
	var bad error
	part := func(text string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(text)
		bad = cmp.Or(bad, err)
		return b
	}
	switch w.Kty {
	case "RSA":
		n, e := part(w.N), part(w.E)
		if bad != nil || len(e) == 0 || len(e) > 4 {
			return verifyKey{}, errors.New("malformed RSA key")
		}
		return publicKey(w.Kid, &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())})
	case "EC":
		x, y := part(w.X), part(w.Y)
		k, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
		if bad != nil || len(x) != 32 || err != nil {
			return verifyKey{}, errors.New("malformed ECDSA key")
		}
		return publicKey(w.Kid, k)
	}
	secret := part(w.K)
	if bad != nil || len(secret) < minSecret {
		return verifyKey{}, fmt.Errorf("a secret has at least %d bytes", minSecret)
	}
	return verifyKey{w.Kid, algHMAC, secret}, nil
}
