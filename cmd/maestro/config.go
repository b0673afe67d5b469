package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/hosted"
)

// Every flag of a command that runs a session is also an environment variable and a key
// of the file of --config. --lease-ttl is MAESTRO_LEASE_TTL and lease-ttl. A flag
// precedes a variable, and a variable precedes the file.

// variablesOf returns the environment variables that set a flag of a command, the first
// one first.
func variablesOf(cmd *cobra.Command, flag string) []variable {
	if names := hosted.Variables(flag); names != nil && cmd.Name() == "hosted-runner" {
		list := make([]variable, len(names))
		for i, name := range names {
			list[i] = variable{name: name, foreign: true}
		}
		return list
	}
	list := []variable{{name: "MAESTRO_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))}}
	for _, v := range numbers {
		if v.flag == flag {
			list = append(list, variable{name: v.name, unit: v.unit, number: true})
		}
	}
	return list
}

// A variable is an environment variable that sets a flag.
type variable struct {
	name    string
	unit    string // appended to its number
	number  bool   // only positive integers are allowed
	foreign bool   // package hosted reads it
}

// numbers are the variables of other implementations of the protocol.
var numbers = []struct{ name, flag, unit string }{
	{"MAESTRO_HEADLESS_CONNECTION_HEARTBEAT_INTERVAL_MS", "heartbeat-interval", "ms"},
	{"MAESTRO_HEADLESS_CONNECTION_IDLE_MS", "lease-ttl", "ms"},
	{"MAESTRO_HEADLESS_SUBSCRIPTION_IDLE_MS", "subscription-ttl", "ms"},
	{"MAESTRO_HEADLESS_RUNTIME_IDLE_MS", "idle-ttl", "ms"},
	{"MAESTRO_HEADLESS_UTILITY_FILE_READ_MAX_BYTES", "max-read-bytes", ""},
}

// notSettings are the flags that are no keys of a file.
var notSettings = []string{"help", "config"}

// A parsedFlag is a flag that a command line may have several times. set parses its texts.
type parsedFlag struct {
	texts []string
	set   func(text string) error
}

func (f *parsedFlag) Set(text string) error {
	f.texts = append(f.texts, text)
	return f.set(text)
}

func (f *parsedFlag) String() string     { return strings.Join(f.texts, ",") }
func (f *parsedFlag) Type() string       { return "text" }
func (f *parsedFlag) GetSlice() []string { return f.texts }

// registerConfig adds --config, and reads the environment and the file before the
// command runs.
func registerConfig(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", "", "TOML file with settings, by the names of flags; variables and flags precede it (docs/operating.md)")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		_, err := applySources(cmd, os.LookupEnv, os.Unsetenv)
		return err
	}
}

// applySources sets the flags that were not given from the environment and the file of
// --config. It returns where each flag comes from, by the name of the flag.
//
// It unsets the variables that are named after flags. The agent inherits the
// environment, and a maestro that it starts must not listen on the same address.
func applySources(cmd *cobra.Command, lookup func(string) (string, bool), unset func(string) error) (map[string]string, error) {
	flags, from := cmd.Flags(), map[string]string{}
	var problems []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		if f.Changed {
			from[f.Name] = "flag"
		}
		for _, v := range variablesOf(cmd, f.Name) {
			text, ok := lookup(v.name)
			if ok && !v.number && !v.foreign {
				problems = append(problems, unset(v.name))
			}
			if text = strings.TrimSpace(text); text == "" || from[f.Name] != "" {
				continue
			}
			from[f.Name] = v.name
			if v.foreign {
				continue
			}
			if n, err := strconv.ParseInt(text, 10, 64); v.number && (err != nil || n <= 0) {
				problems = append(problems, fmt.Errorf("%s=%q: want a positive integer", v.name, text))
				continue
			}
			if err := setAll(flags, f.Name, strings.Split(text+v.unit, "\n")); err != nil {
				problems = append(problems, fmt.Errorf("%s=%q: %w", v.name, mask.Text(text), err))
			}
		}
	})
	if path := flags.Lookup("config").Value.String(); path != "" {
		if err := applyFile(flags, path, from); err != nil {
			problems = append(problems, fmt.Errorf("--config %s: %w", path, err))
		}
	}
	return from, errors.Join(problems...)
}

// maxConfigFile is in bytes. It bounds the time that the library takes for nested keys, which
// grows with the square of the size.
const maxConfigFile = 64 << 10

// readConfig returns the settings in the file of --config.
func readConfig(path string) (map[string]any, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxConfigFile {
		return nil, fmt.Errorf("the file is longer than %d bytes", maxConfigFile)
	}
	values := map[string]any{}
	return values, toml.Unmarshal(text, &values)
}

// applyFile sets the flags that have no source yet from a file.
func applyFile(flags *pflag.FlagSet, path string, from map[string]string) error {
	values, err := readConfig(path)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		f := flags.Lookup(key)
		if f == nil || slices.Contains(notSettings, key) {
			return fmt.Errorf("no setting %q; the nearest is %q", key, nearest(flags, key))
		}
		if from[key] != "" {
			continue
		}
		texts, err := textsOf(values[key])
		if err == nil {
			err = setAll(flags, key, texts)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		from[key] = path
	}
	return nil
}

// textsOf returns a value of a file as the texts that a command line would have.
func textsOf(value any) ([]string, error) {
	switch v := value.(type) {
	case string, bool, int64, float64:
		return []string{fmt.Sprint(v)}, nil
	case []any:
		var texts []string
		for _, item := range v {
			text, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("want a list of texts, got %v in it", item)
			}
			texts = append(texts, text)
		}
		return texts, nil
	case map[string]any:
		var texts []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			texts = append(texts, fmt.Sprintf("%s=%v", key, v[key]))
		}
		return texts, nil
	}
	return nil, fmt.Errorf("want a text, a number, true or false, a list or a table, got %v", value)
}

// setAll sets a flag as a command line does that gives it once for each text.
func setAll(flags *pflag.FlagSet, name string, texts []string) error {
	if list, ok := flags.Lookup(name).Value.(pflag.SliceValue); ok && len(texts) != 1 {
		flags.Lookup(name).Changed = true
		return list.Replace(texts)
	}
	for _, text := range texts {
		if err := flags.Lookup(name).Value.Set(text); err != nil {
			return err
		}
	}
	flags.Lookup(name).Changed = true
	return nil
}

// nearest returns the setting that needs the fewest changes to become name.
func nearest(flags *pflag.FlagSet, name string) (best string) {
	least := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(notSettings, f.Name) {
			return
		}
		if d := distance(strings.ReplaceAll(name, "_", "-"), f.Name); best == "" || d < least {
			best, least = f.Name, d
		}
	})
	return best
}

// distance returns how many bytes must be inserted, deleted or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := row[0] // the value that row[j] had for the byte before
		row[0] = i + 1
		for j := range len(b) {
			change := above
			if a[i] != b[j] {
				change++
			}
			above = row[j+1]
			row[j+1] = min(change, above+1, row[j]+1)
		}
	}
	return row[len(b)]
}

func configCommand() *cobra.Command {
	return &cobra.Command{
		Use: "config [COMMAND] [FLAGS]", Short: "Print the settings of a command and where they come from",
		Long: `Config prints the settings that serve, headless, hosted-runner or acp would have with the
same flags, environment and file, and where each comes from. Without a command it prints
those of serve. The output is a file for --config. Secrets in it are masked.`,
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
				return cmd.Help()
			}
			name := "serve"
			if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				name, args = args[0], args[1:]
			}
			of, _, err := rootCommand(name).Find([]string{name})
			if err != nil || of.Flags().Lookup("config") == nil {
				return usage{fmt.Errorf("%q has no settings: want serve, headless, hosted-runner or acp", name)}
			}
			if err := of.ParseFlags(args); err != nil {
				return usage{err}
			}
			if rest := of.Flags().Args(); len(rest) > 0 {
				return usage{fmt.Errorf("too many arguments %q", rest)}
			}
			from, err := applySources(of, os.LookupEnv, func(string) error { return nil })
			if err != nil {
				return usage{err}
			}
			return printSettings(cmd.OutOrStdout(), of, from)
		},
	}
}

// printSettings writes the settings in groups, as help does.
func printSettings(w io.Writer, cmd *cobra.Command, from map[string]string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# settings of maestro %s; those that begin with # are defaults\n", cmd.Name())
	for _, g := range flagGroups {
		title := "\n# " + g.title + "\n"
		for _, name := range g.flags {
			f := cmd.Flags().Lookup(name)
			if f == nil || slices.Contains(notSettings, name) {
				continue
			}
			b.WriteString(title)
			title = ""
			if source, ok := from[name]; ok {
				fmt.Fprintf(&b, "%s = %s # from %s\n", name, tomlOf(f), escapeInvisible(source))
			} else {
				fmt.Fprintf(&b, "# %s = %s\n", name, tomlOf(f))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// tomlOf returns the value of a flag as a value of a file, without secrets.
func tomlOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool", "int", "int64", "float64":
		return f.Value.String()
	case "stringToString":
		var pairs []string
		for _, pair := range strings.Split(strings.Trim(f.Value.String(), "[]"), ",") {
			if key, value, ok := strings.Cut(pair, "="); ok {
				pairs = append(pairs, key+" = "+quote(value))
			}
		}
		return "{ " + strings.Join(pairs, ", ") + " }"
	}
	if list, ok := f.Value.(interface{ GetSlice() []string }); ok {
		items := slices.Clone(list.GetSlice())
		for i, item := range items {
			items[i] = quote(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return quote(f.Value.String())
}

// quote returns a text of TOML, which is also one of JSON, without secrets.
func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(mask.Text(text)) // a text always has a JSON form
	return escapeInvisible(strings.TrimSpace(b.String()))
}

// escapeInvisible escapes what JSON leaves as it is and a terminal does not show as it is.
func escapeInvisible(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
