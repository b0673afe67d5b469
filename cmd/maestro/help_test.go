package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestEveryFlagIsInOneGroup is about the commands whose help has groups.
func TestEveryFlagIsInOneGroup(t *testing.T) {
	group := map[string]string{"help": "Other"}
	for _, g := range flagGroups {
		for _, name := range g.flags {
			if group[name] != "" {
				t.Errorf("--%s: got groups %q and %q, want one", name, group[name], g.title)
			}
			group[name] = g.title
		}
	}
	used := map[string]bool{"help": true}
	for _, cmd := range rootCommand().Commands() {
		switch cmd.Name() {
		case "serve", "headless", "hosted-runner", "acp":
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				used[f.Name] = true
				if group[f.Name] == "" {
					t.Errorf("maestro %s --%s: got no group for help", cmd.Name(), f.Name)
				}
			})
		}
	}
	for name := range group {
		if !used[name] {
			t.Errorf("--%s: got a group for a flag that no command has", name)
		}
	}
}

func TestHelpListsFlagsInGroups(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help", "serve"}, {"serve", "--help"}} {
		out, err := program(t, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		text := string(out)
		for _, want := range []string{"\nUsage:\n  maestro serve [flags]\n", "\nAgent:\n      --agent ", "\nAuthentication:\n      --auth ", "\nOther:\n  -h, --help"} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%q: got no single %q in:\n%s", args, want, text)
			}
		}
		if strings.Contains(text, "\nRunner:") {
			t.Errorf("%q: got a group without flags:\n%s", args, text)
		}
	}
}

func TestEveryFlagIsInADocument(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range append(pages, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, cmd := range rootCommand().Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !regexp.MustCompile(`--` + f.Name + `\b`).MatchString(all.String()) {
				t.Errorf("maestro %s --%s is in no document", cmd.Name(), f.Name)
			}
		})
	}
}
