package check_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// TestDockerfileBuildsWhatMakeBuilds reads the Dockerfile as BuildKit does. The image itself is
// built by `make image`, which needs a builder and the base images.
func TestDockerfileBuildsWhatMakeBuilds(t *testing.T) {
	t.Parallel()
	text := read(t, "Dockerfile")
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		t.Error(w.Short)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, at []parser.Range) { t.Errorf("%v: %s: %s", at, rule, message) }})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, stage := range stages {
		for _, command := range stage.Commands {
			if c, ok := command.(*instructions.CopyCommand); ok && c.From != "" && !names[c.From] {
				t.Errorf("got a copy from %s, which is no stage before", c.From)
			}
		}
		names[stage.Name] = true
	}
	found := func(file, pattern string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		match := regexp.MustCompile(pattern).FindSubmatch(text)
		if match == nil {
			t.Fatalf("%s: got nothing like %s", file, pattern)
		}
		return string(match[1])
	}
	const flags = `(CGO_ENABLED=0 go build .*) -o \S+ \./cmd/maestro`
	if got, want := found("../Dockerfile", flags), found("../../Makefile", flags); got != want {
		t.Errorf("got %s, want that of make: %s", got, want)
	}
	if got, want := found("../Dockerfile", `FROM golang:(\d+\.\d+) AS`), found("../../go.mod", `(?m)^go (\d+\.\d+)`); got != want {
		t.Errorf("got Go %s, want that of go.mod: %s", got, want)
	}
}
