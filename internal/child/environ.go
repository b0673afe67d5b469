package child

import (
	"slices"
	"strings"
	"unicode"
)

// secretWords are the words that make a name look like that of a credential.
var secretWords = []string{
	"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PAT",
	"CREDENTIAL", "CREDENTIALS", "AUTH", "AUTHORIZATION", "COOKIE",
}

// secretEndings are for words written together, such as PGPASSWORD. KEY alone is
// not among them, or MONKEY would be a secret.
var secretEndings = []string{
	"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "ACCESSKEY", "PRIVATEKEY", "SECRETKEY",
}

// hostedNames is what a process gets in hosted mode, with every LC_ name.
var hostedNames = []string{"PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "SHELL", "USER", "PWD"}

// SecretName reports whether name looks like that of a credential, judged by
// its words in any case: API_KEY and --api-key do, KEYBOARD and MONKEY do not.
func SecretName(name string) bool {
	words := nameWords(name)
	return slices.ContainsFunc(words, secretWord) ||
		len(words) > 1 && slices.Contains(words, "PWD") // alone it is the current directory
}

// secretVariable is SecretName for the environment, where a plural counts, too:
// API_KEYS holds keys. Elsewhere max_tokens is more often a number of them. So
// do headers that are sent along, as OTEL_EXPORTER_OTLP_HEADERS are.
func secretVariable(name string) bool {
	return SecretName(name) || slices.ContainsFunc(nameWords(name), func(word string) bool {
		return word == "HEADERS" || secretWord(strings.TrimSuffix(word, "S"))
	})
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

// Environ returns what of env, in the form of [os.Environ], a process may see
// (D10): everything whose name does not look like a credential's, or in hosted
// mode only what is known to be needed. The names in pass are always let
// through. SSH_AUTH_SOCK counts as a credential: who has it can use the keys of
// the agent behind it.
func Environ(env []string, hosted bool, pass []string) []string {
	var kept []string
	for _, entry := range env {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" { // Windows keeps the directory of each drive under an empty name
			continue
		}
		allowed := !secretVariable(name)
		if hosted {
			allowed = slices.Contains(hostedNames, name) || strings.HasPrefix(name, "LC_")
		}
		if allowed || slices.Contains(pass, name) {
			kept = append(kept, entry)
		}
	}
	return kept
}
