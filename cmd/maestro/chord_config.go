package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A chordProvider is a model in the configuration of a Chord program.
type chordProvider struct {
	url, model, key string
	context, output int64 // tokens; 0: not configured
}

// chordConfigDir returns the folder of Chord's configuration.
func chordConfigDir(getenv func(string) string) string {
	if dir := getenv("CHORD_CONFIG_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(cmp.Or(getenv("XDG_CONFIG_HOME"), filepath.Join(getenv("HOME"), ".config")), "chord")
}

// readChordConfig returns the first model of the first provider of the type
// chat-completions in config.yaml, and its first key in auth.yaml. It returns nil if
// there is no configuration.
func readChordConfig(dir string, getenv func(string) string) (*chordProvider, error) {
	path := filepath.Join(dir, "config.yaml")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := readOutline(text)
	name := ""
	for _, l := range all {
		if len(l.path) == 3 && l.path[0] == "providers" && l.path[2] == "type" && l.value == "chat-completions" {
			name = l.path[1]
			break
		}
	}
	model := all.below("providers", name, "models")
	url := all.value("providers", name, "api_url")
	if name == "" || url == "" || model == "" {
		return nil, fmt.Errorf("%s has no provider of the type chat-completions with an api_url and a model: give --agent", path)
	}
	p := chordProvider{url: strings.TrimSuffix(os.Expand(url, getenv), "/chat/completions"), model: model}
	p.context, _ = strconv.ParseInt(all.value("providers", name, "models", model, "limit", "context"), 10, 64) // 0 is the default
	p.output, _ = strconv.ParseInt(all.value("providers", name, "models", model, "limit", "output"), 10, 64)
	p.key, err = readChordKey(filepath.Join(dir, "auth.yaml"), name, getenv)
	return &p, err
}

// readChordKey returns the first key of a provider; empty if there is none.
func readChordKey(path, provider string, getenv func(string) string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return os.Expand(readOutline(text).value(provider, "-"), getenv), err
}

// An outline is the lines of a YAML file.
type outline []outlineLine

// value returns the first value at a path.
func (o outline) value(path ...string) string {
	i := slices.IndexFunc(o, func(l outlineLine) bool { return slices.Equal(l.path, path) })
	if i < 0 {
		return ""
	}
	return o[i].value
}

// below returns the first key below a path.
func (o outline) below(path ...string) string {
	n := len(path)
	i := slices.IndexFunc(o, func(l outlineLine) bool { return len(l.path) == n+1 && slices.Equal(l.path[:n], path) })
	if i < 0 {
		return ""
	}
	return o[i].path[n]
}

// An outlineLine is a line of a YAML file in block style: the keys above it with its
// own, which is - for an item of a list.
type outlineLine struct {
	path  []string
	value string
}

// readOutline reads the keys and plain values of a YAML file. It does not know what
// Chord's configuration does without here: anchors, flow style and texts of several
// lines are left as values.
func readOutline(text []byte) (all outline) {
	type level struct {
		indent int
		key    string
	}
	var above []level
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		line, _, _ := strings.Cut(scan.Text(), " #")
		body := strings.TrimSpace(line)
		if body == "" || strings.HasPrefix(body, "#") {
			continue
		}
		indent := len(line) - len(strings.TrimLeft(line, " "))
		key, value, ok := strings.Cut(body, ":")
		if item, found := strings.CutPrefix(body, "- "); found {
			key, value, indent = "-", item, indent+1 // an item may begin where its list does
		} else if !ok {
			continue
		}
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		above = append(above, level{indent, strings.Trim(key, `"'`)})
		l := outlineLine{value: strings.Trim(strings.TrimSpace(value), `"'`)}
		for _, a := range above {
			l.path = append(l.path, a.key)
		}
		all = append(all, l)
	}
	return all
}
