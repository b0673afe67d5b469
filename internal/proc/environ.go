package proc

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// secretWords are words that make a name look like that of a credential.
var secretWords = []string{
	"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PAT",
	"CREDENTIAL", "CREDENTIALS", "CRED", "CREDS", "AUTH", "AUTHORIZATION", "COOKIE",
}

// secretEndings are endings of words written together, such as PGPASSWORD.
var secretEndings = []string{
	"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "SSHPASS", "APIKEY", "ACCESSKEY", "ACCOUNTKEY", "PRIVATEKEY", "SECRETKEY",
}

// lastWords make a variable look like a credential only at the end of its name:
// SERVICE_JWT is one, JWT_AUDIENCE and OAUTH_CLIENT_ID describe one.
var lastWords = []string{
	"_JWT", "_BEARER", "_OAUTH", "_OAUTH2", "_SK", "_PEM", "_DSN", "_WEBHOOK", "_WEBHOOK_URL", "_WEBHOOK_URI",
}

// A token is the form of the credentials that a service gives out: how they begin, and
// an expression for what follows.
type token struct{ prefix, rest string }

// tokens are the forms that gitleaks knows, as far as they need no context.
var tokens = []token{
	{"AKIA", `[A-Z2-7]{16}`}, {"ASIA", `[A-Z2-7]{16}`}, {"ABIA", `[A-Z2-7]{16}`}, {"ACCA", `[A-Z2-7]{16}`}, // AWS
	{"AIza", `[\w-]{30,}`}, {"GOCSPX-", `[\w-]{20,}`}, {"ya29.", `[\w.-]{20,}`}, // Google
	{"ghp_", `\w{20,}`}, {"gho_", `\w{20,}`}, {"ghu_", `\w{20,}`}, {"ghs_", `\w{20,}`}, {"ghr_", `\w{20,}`}, {"github_pat_", `\w{20,}`},
	{"glpat-", `[\w.-]{20,}`}, {"gldt-", `[\w.-]{20,}`}, {"glrt-", `[\w.-]{20,}`}, {"glptt-", `[\w.-]{20,}`}, {"glcbt-", `[\w.-]{20,}`}, {"glsoat-", `[\w.-]{20,}`}, // GitLab
	{"xoxa-", slackRest}, {"xoxb-", slackRest}, {"xoxe-", slackRest}, {"xoxe.", slackRest}, {"xoxp-", slackRest}, {"xoxr-", slackRest}, {"xoxs-", slackRest}, {"xapp-", slackRest},
	{"sk-", `(?:(?:ant|proj|svcacct|admin|or)-[\w-]{20,}|[A-Za-z0-9]{20,})`}, {"gsk_", `\w{20,}`}, {"xai-", `\w{20,}`}, // OpenAI, Anthropic and others
	{"sk_live_", `\w{10,}`}, {"sk_test_", `\w{10,}`}, {"rk_live_", `\w{10,}`}, {"rk_test_", `\w{10,}`}, // Stripe
	{"npm_", `[A-Za-z0-9]{20,}`}, {"pypi-", `[\w-]{20,}`}, {"rubygems_", `[a-f0-9]{20,}`}, {"dckr_pat_", `[\w-]{20,}`}, {"hf_", `[A-Za-z0-9]{20,}`},
	{"SG.", `[\w-]{16,}\.[\w-]{16,}`}, {"dop_v1_", `[a-f0-9]{20,}`}, {"doo_v1_", `[a-f0-9]{20,}`}, {"dor_v1_", `[a-f0-9]{20,}`}, // SendGrid, DigitalOcean
	{"hvs.", `[\w-]{20,}`}, {"hvb.", `[\w-]{20,}`}, {"shpat_", `[a-fA-F0-9]{20,}`}, {"shpca_", `[a-fA-F0-9]{20,}`}, {"shpss_", `[a-fA-F0-9]{20,}`}, // Vault, Shopify
	{"glsa_", `\w{20,}`}, {"lin_api_", `\w{20,}`}, {"ATATT3", `[\w=-]{20,}`}, {"dapi", `[a-f0-9]{32}`}, {"AGE-SECRET-KEY-1", `[0-9A-Z]{40,}`},
	{"eyJ", `[\w-]{10,}\.eyJ[\w-]{10,}(?:\.[\w-]*)?`}, // a JSON web token
}

const slackRest = `[\w-]{10,}`

// Tokens finds the credentials of known forms, each in its second group; the first is
// empty. It is compiled at its first use.
var Tokens = sync.OnceValue(func() *regexp.Regexp {
	var forms []string
	for _, t := range tokens {
		forms = append(forms, regexp.QuoteMeta(t.prefix)+t.rest)
	}
	return regexp.MustCompile(`\b()(` + strings.Join(forms, "|") + `)`)
})

// MayHoldTokens reports whether a text has the beginning of a token in it. It is much
// faster than Tokens.
func MayHoldTokens(text string) bool {
	return slices.ContainsFunc(tokens, func(t token) bool { return strings.Contains(text, t.prefix) })
}

// hostedNames are the variables that a process gets in hosted mode, besides all
// LC_ names.
var hostedNames = []string{"PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "SHELL", "USER", "PWD"}

// SecretName reports whether name looks like that of a credential. It compares
// words regardless of case: API_KEY and --api-key look like one, KEYBOARD and
// MONKEY do not.
func SecretName(name string) bool {
	words := nameWords(name)
	return slices.ContainsFunc(words, secretWord) ||
		len(words) > 1 && slices.Contains(words, "PWD") // alone it is the current directory
}

// CertainSecret reports whether a name can hardly be anything but that of a credential.
// SecretName is also true of sort-key, or of auth.
func CertainSecret(name string) bool {
	joined := strings.Join(nameWords(name), "")
	return strings.HasSuffix(joined, "AUTHORIZATION") || strings.HasSuffix(joined, "COOKIE") ||
		slices.ContainsFunc(secretEndings, func(end string) bool { return strings.HasSuffix(joined, end) })
}

// secretVariable reports whether the name of an environment variable looks like that
// of a credential. Besides the names of [SecretName] these are plurals, as in API_KEYS,
// HTTP headers, shared access signatures (SAS), connection strings, and names that end
// in one of lastWords.
func secretVariable(name string) bool {
	words := nameWords(name)
	joined := "_" + strings.Join(words, "_")
	return SecretName(name) ||
		slices.ContainsFunc(words, func(word string) bool {
			return word == "HEADERS" || word == "SAS" || secretWord(strings.TrimSuffix(word, "S"))
		}) ||
		slices.ContainsFunc(lastWords, func(end string) bool {
			return strings.HasSuffix(joined, end) || strings.HasSuffix(joined, end+"S")
		}) ||
		strings.Contains(joined, "CONNECTION_STRING") || strings.Contains(joined, "CONNECTIONSTRING")
}

// secretValue reports whether the value of a variable contains a URL that is a
// credential. A proxy may have no scheme. Whoever has the URL of a hook can post to it.
func secretValue(name, value string) bool {
	joined, hasScheme := "_"+strings.Join(nameWords(name), "_"), strings.Contains(value, "://")
	switch {
	case strings.HasSuffix(joined, "_PROXY") && !hasScheme:
		return holdsPassword("http://" + strings.TrimSpace(value))
	case strings.HasSuffix(joined, "_HOOK"), strings.HasSuffix(joined, "_HOOKS"):
		return hasScheme
	}
	return holdsPassword(value)
}

// holdsPassword reports whether a value contains a URL with a password, as in
// postgres://user:password@host/name, or with a token as the user name.
func holdsPassword(value string) bool {
	for {
		_, rest, found := strings.Cut(value, "://")
		if !found {
			return false
		}
		value = rest
		url := upTo(rest, " \t\r\n\"'`<>")
		authority := upTo(url, "/?#")
		if at := strings.LastIndexByte(authority, '@'); at >= 0 {
			user, password, _ := strings.Cut(authority[:at], ":")
			if password != "" || slices.ContainsFunc(tokens, func(t token) bool { return strings.HasPrefix(user, t.prefix) }) {
				return true
			}
			continue
		}
		// An unencoded slash in a password ends the authority early. The text
		// after the last colon is then no port.
		host := authority[strings.LastIndexByte(authority, ']')+1:]
		if colon := strings.LastIndexByte(host, ':'); colon >= 0 && strings.Trim(host[colon+1:], "0123456789") != "" && strings.Contains(url, "@") {
			return true
		}
	}
}

// upTo returns text up to the first of the characters in ends.
func upTo(text, ends string) string {
	if end := strings.IndexAny(text, ends); end >= 0 {
		return text[:end]
	}
	return text
}

func secretWord(word string) bool {
	return slices.Contains(secretWords, word) ||
		slices.ContainsFunc(secretEndings, func(end string) bool { return strings.HasSuffix(word, end) })
}

// nameWords returns the words of a name in upper case.
func nameWords(name string) []string {
	return strings.FieldsFunc(strings.ToUpper(name), func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}

// Environ returns the variables of env, in the form of [os.Environ], that a process
// may see (D10): those whose name does not look like that of a credential, as does
// SSH_AUTH_SOCK, and whose value has no URL with a password or a token; in hosted mode
// only the necessary ones. The names in pass are always included.
func Environ(env []string, hosted bool, pass []string) []string {
	var kept []string
	for _, entry := range env {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" { // Windows keeps the directory of each drive under an empty name
			continue
		}
		allowed := !secretVariable(name) && !secretValue(name, value)
		if hosted {
			allowed = slices.Contains(hostedNames, name) || strings.HasPrefix(name, "LC_")
		}
		if allowed || slices.Contains(pass, name) {
			kept = append(kept, entry)
		}
	}
	return kept
}
