// Package mask hides what looks like a credential from what clients are shown.
package mask

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	proc "github.com/seed-028515a8/maestro/internal/child"
)

// Mark stands where a secret was.
const Mark = "***"

// What a command line may carry a secret in: a value of characters that
// credentials are made of. Anything else is shown, whatever it is called: a shell
// may run what is quoted, and who approves a command must see all that it does.
var (
	assignment    = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_-]*=)("[A-Za-z0-9+/=_.:~@%-]+"|'[A-Za-z0-9+/=_.:~@%-]+'|[A-Za-z0-9+/=_.:~@%-]+)`)
	authorization = regexp.MustCompile(`(?i)(authorization:[ \t]*)((?:basic|bearer|digest|token)[ \t]+[A-Za-z0-9+/=_.:~-]+|[A-Za-z0-9][A-Za-z0-9+/=_.:~-]{15,})`)
)

// Command hides the values of assignments and options whose names look like
// those of credentials, and of authorization headers, as far as they could be
// credentials. What could be anything else is left as it is.
func Command(line string) string {
	line = maskMatches(assignment, line, func(name string) bool { return proc.SecretName(strings.TrimSuffix(name, "=")) })
	return maskMatches(authorization, line, func(string) bool { return true })
}

// maskMatches replaces the second group of every match of re whose first group
// is secret.
func maskMatches(re *regexp.Regexp, line string, secret func(string) bool) string {
	return re.ReplaceAllStringFunc(line, func(match string) string {
		parts := re.FindStringSubmatch(match)
		if !secret(parts[1]) {
			return match
		}
		return parts[1] + Mark
	})
}

// Args returns args as clients may see them: values under keys that look
// like credentials are hidden, at any depth, and so are those inside the text
// under "command". Args without secrets, or that are not JSON, are returned as
// they are; otherwise keys come out sorted.
func Args(args json.RawMessage) json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber() // numbers keep their spelling
	var value any
	if dec.Decode(&value) != nil {
		return args
	}
	masked, found := maskValue("", value)
	if !found {
		return args
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // what is shown is not longer than what it shows
	if enc.Encode(masked) != nil {
		return args // not reached: what was decoded can be encoded
	}
	return bytes.TrimSpace(text.Bytes())
}

// maskValue masks the value found under key, in place where it can, and reports
// whether there was anything to hide.
func maskValue(key string, value any) (masked any, found bool) {
	if value != nil && secretKey(key) {
		return Mark, true
	}
	switch v := value.(type) {
	case string:
		if key == "command" {
			masked := Command(v)
			return masked, masked != v
		}
	case map[string]any:
		for k, e := range v {
			m, hid := maskValue(k, e)
			v[k], found = m, found || hid
		}
	case []any:
		for i, e := range v {
			m, hid := maskValue(key, e)
			v[i], found = m, found || hid
		}
	}
	return value, found
}

// secretKey is [proc.SecretName] for the keys of objects, where "key" alone is more
// often the name of a thing than a secret.
func secretKey(key string) bool {
	return proc.SecretName(key) && !strings.EqualFold(key, "key")
}
