// Package mask hides what looks like a credential from what clients are shown.
package mask

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// Mark stands where a secret was.
const Mark = "***"

// What a command line may carry a secret in: a value of characters that
// credentials are made of. Anything else is shown, whatever it is called: a shell
// may run what is quoted, and who approves a command must see all that it does.
var (
	assignment    = lazyregexp.New(`([A-Za-z_][A-Za-z0-9_-]*=)("[A-Za-z0-9+/=_.:~@%-]+"|'[A-Za-z0-9+/=_.:~@%-]+'|[A-Za-z0-9+/=_.:~@%-]+)`)
	authorization = lazyregexp.New(`(?i)(authorization:[ \t]*)((?:basic|bearer|digest|token)[ \t]+[A-Za-z0-9+/=_.:~-]+|[A-Za-z0-9][A-Za-z0-9+/=_.:~-]{15,})`)
)

// runsText finds what runs text that a line makes: eval, a file that is read in,
// names of variables in variables, and shells and interpreters that read from a pipe.
var runsText = lazyregexp.New(`(?:^|[\s;&|(){}!"'` + "`" + `])(?:eval|source)\s` +
	`|(?:^|[\n;&|(){}!"'` + "`" + `]|(?:then|else|do|builtin|command)\s)[ \t]*(?:[A-Za-z_][A-Za-z0-9_]*=\S*[ \t]+)*\.\s+\S` +
	`|\$\{!` +
	`|\|&?\s*(?:(?:\S*/)?(?:sudo|doas|env|exec|nohup|command|builtin|time|busybox)\s[^|;&\n]*?)?["'\\]?(?:\S*/)?` +
	`(?:sh|bash|dash|zsh|ksh|ash|fish|python[0-9.]*|perl|ruby|node|php|lua|pwsh|powershell|cmd|xargs|parallel)(?:\.exe)?["']?(?:[\s;&|)]|$)`)

// Command hides in a line for a shell the values of assignments and options whose
// names look like those of credentials, and of authorization headers, as far as they
// could be credentials. What could be anything else is left as it is, and so is a
// value that the line uses again, which it may run: under $NAME or %NAME%, or by
// what runs text.
func Command(line string) string {
	if runsText().MatchString(line) {
		return line
	}
	return hide(line, func(name string) bool { return proc.SecretName(name) && !used(name, line) })
}

// Text is [Command] for what no shell runs: it hides all that looks like a
// credential.
func Text(text string) string { return hide(text, proc.SecretName) }

func hide(text string, secret func(name string) bool) string {
	text = maskMatches(assignment(), text, func(name string) bool { return secret(strings.TrimSuffix(name, "=")) })
	return maskMatches(authorization(), text, func(string) bool { return true })
}

// used reports whether a shell would put the value of a variable somewhere in the
// line, not only its length. Windows knows variables in any case.
func used(name, line string) bool {
	use := regexp.MustCompile(`(?i)(?:[$%!{]|env:)` + regexp.QuoteMeta(name) + `(?:[^A-Za-z0-9_]|$)`)
	return use.MatchString(line)
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
