// Package mask hides what looks like a credential from what clients are shown.
package mask

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// Mark stands where a secret was.
const Mark = "***"

// A pattern finds secrets: its first group is what the secret is called, and its second
// the secret. What is called so it may be something else where the first says no.
type pattern struct {
	find  func() *regexp.Regexp
	named func(name string) bool // nil for every name
	needs func(text string) bool // says quickly that a text has none; may be nil
}

// having returns what is true of texts with one of some words.
func having(words ...string) func(text string) bool {
	return func(text string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
	}
}

// The secrets of texts that a shell may read consist of characters that credentials
// are made of. Anything else is shown, whatever it is called: a shell may run what is
// quoted, and who approves a command must see all that it does.
const (
	plain  = `[A-Za-z0-9+/=_.:~@%-]+`
	value  = `("` + plain + `"|'` + plain + `'|[A-Za-z0-9+/=_.:~@%][A-Za-z0-9+/=_.:~@%-]*)`
	inside = `([^\s"'\\$` + "`" + `();&|<>]+)` // quotes

	// skipped are other arguments of a command.
	skipped = `(?:[^\n;|&"']|"[^"\n]*"|'[^'\n]*')*?`
)

var (
	// shapes are what is a secret whatever stands around it.
	shapes = []pattern{
		{needs: having("://"), find: lazyregexp.New(`(://[^\s/:@"'<>` + "`" + `]*:)([^\s/@"'<>` + "`" + `$();&|*]+)@`)},
		{needs: having("PRIVATE KEY-----"), find: lazyregexp.New(`(-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\\n|\s)*)((?:[A-Za-z0-9+/=]{40,}(?:\\n|\s)*)+)`)}, // without a last short line
		{needs: proc.MayHoldTokens, find: proc.Tokens},
	}

	// assignments are of variables and options, NAME=value and --name=value.
	assignments = lazyregexp.New(`([A-Za-z_][A-Za-z0-9_-]*)=("` + plain + `"|'` + plain + `'|` + plain + `)`)

	certain = []pattern{
		{find: lazyregexp.New(`["']([A-Za-z_][A-Za-z0-9_-]*)\\?["'][ \t]*:[ \t]*\\?["']` + inside + `\\?["']`), named: secretKey}, // in JSON
		{find: lazyregexp.New(`(--?[A-Za-z][A-Za-z0-9-]*)[ \t]+` + value), named: func(name string) bool {
			return proc.CertainSecret(name) && !strings.HasPrefix(strings.TrimLeft(name, "-"), "no-")
		}},
		{find: lazyregexp.New(`(?i)([A-Za-z][A-Za-z0-9_-]*):[ \t]*((?:basic|bearer|digest|token|apikey)[ \t]+[A-Za-z0-9+/=_.:~-]+|[A-Za-z0-9][A-Za-z0-9+/=_.~-]{15,})`), named: proc.CertainSecret},
		{find: lazyregexp.New(`(?:-H|--header)[= \t]*["']?([A-Za-z][A-Za-z0-9_-]*):[ \t]*([A-Za-z0-9+/=_.:~-]+)`), named: proc.CertainSecret, needs: having("-H", "--header")},
		{needs: having("curl", "wget", "http", "xh"), find: lazyregexp.New(`\b((?:curl|curlie|wget|https?|xh)` + skipped + `[ \t](?:-u|-a|--user|--auth|--proxy-user)[ \t=]*["']?[^\s:"'=/]+:)` + inside)},
		{needs: having("login", "sshpass", "redis-cli", "mysql", "mariadb"), find: lazyregexp.New(`\b((?:docker|podman|helm)[ \t](?:registry[ \t])?login` + skipped + `[ \t]-p[ \t]+|sshpass[ \t]+-p[ \t]*|redis-cli` + skipped +
			`[ \t]-a[ \t]+|(?:mysql|mariadb)[a-z]*` + skipped + `[ \t]-p)` + value)},
	}
)

// runsText finds what runs text that a line makes: eval, a file that is read in,
// names of variables in variables, shells whose lines use their arguments, and shells
// and interpreters that read from a pipe.
var runsText = lazyregexp.New(`(?:^|[\s;&|(){}!"'` + "`" + `])(?:eval|source)\s` +
	`|(?:^|[\n;&|(){}!"'` + "`" + `]|(?:then|else|do|builtin|command)\s)[ \t]*(?:[A-Za-z_][A-Za-z0-9_]*=\S*[ \t]+)*\.\s+\S` +
	`|\$\{!` +
	`|sh[ \t]+(?:-\S+[ \t]+)*-[a-z]*c[ \t][^\n]*\$\{?[0-9@*]` +
	`|\|&?\s*(?:(?:\S*/)?(?:sudo|doas|env|exec|nohup|command|builtin|time|busybox)\s[^|;&\n]*?)?["'\\]?(?:\S*/)?` +
	`(?:sh|bash|dash|zsh|ksh|ash|fish|python[0-9.]*|perl|ruby|node|php|lua|pwsh|powershell|cmd|xargs|parallel)(?:\.exe)?["']?(?:[\s;&|)]|$)`)

// uses finds the variables whose values a shell would put somewhere in a line.
var uses = lazyregexp.New(`(?i)(?:[$!]\{?env:|[$%!{]|env:)([A-Za-z0-9_]+)`)

// Command hides what looks like a credential in a line for a shell: the values of
// assignments, options, headers and members of objects with the name of one, passwords
// in URLs and in arguments of programs like curl, private keys, and tokens of known
// forms. What could be anything else is left as it is, and so is a value that the line
// uses again, which it may run: under $NAME or %NAME%, or by what runs text.
func Command(line string) string {
	if runsText().MatchString(line) {
		return line
	}
	used := map[string]bool{} // Windows knows variables in any case
	for _, match := range uses().FindAllStringSubmatch(line, -1) {
		used[strings.ToUpper(match[1])] = true
	}
	return hide(line, func(name string) bool { return proc.SecretName(name) && !used[strings.ToUpper(name)] })
}

// Text is [Command] for a text that no shell runs: it hides every credential.
func Text(text string) string { return hide(text, proc.SecretName) }

func hide(text string, secretVariable func(name string) bool) string {
	text = pattern{find: assignments, named: secretVariable}.cover(text)
	for _, p := range certain {
		text = p.cover(text)
	}
	return shaped(text)
}

// shaped returns text without what is a secret by its shape.
func shaped(text string) string {
	for _, p := range shapes {
		text = p.cover(text)
	}
	return text
}

// cover puts the mark in the place of the secrets that the pattern finds.
func (p pattern) cover(text string) string {
	if p.needs != nil && !p.needs(text) {
		return text
	}
	var b strings.Builder
	done := 0
	for _, at := range p.find().FindAllStringSubmatchIndex(text, -1) {
		if p.named == nil || p.named(text[at[2]:at[3]]) {
			b.WriteString(text[done:at[4]] + Mark)
			done = at[5]
		}
	}
	return b.String() + text[done:]
}

// Args returns args as clients may see them: values under keys that look
// like credentials are hidden, at any depth, and so are those inside the text
// under "command", and tokens of known forms everywhere. Args without secrets, or that are not JSON, are returned as
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
	_ = enc.Encode(masked)   // what was decoded can be encoded
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
		hidden := shaped(v)
		if key == "command" {
			hidden = Command(v)
		}
		return hidden, hidden != v
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

// Log returns a log whose messages and texts pass through hide on their way to
// log. Groups are left as they are.
func Log(log *slog.Logger, hide func(string) string) *slog.Logger {
	return slog.New(&handler{log.Handler(), hide})
}

type handler struct {
	slog.Handler
	hide func(string) string
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	masked := slog.NewRecord(r.Time, r.Level, h.hide(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(h.mask(a))
		return true
	})
	return h.Handler.Handle(ctx, masked)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	masked := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		masked = append(masked, h.mask(a))
	}
	return &handler{h.Handler.WithAttrs(masked), h.hide}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.hide}
}

// mask passes the text or error of an attribute through hide.
func (h *handler) mask(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	switch err, ok := a.Value.Any().(error); {
	case ok:
		a.Value = slog.StringValue(h.hide(err.Error()))
	case a.Value.Kind() == slog.KindString:
		a.Value = slog.StringValue(h.hide(a.Value.String()))
	}
	return a
}
