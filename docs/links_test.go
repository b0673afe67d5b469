// Package docs_test checks the pages of the repository.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// pages returns the Markdown files of the repository by their paths from here.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "transcripts"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		texts[path] = fence.ReplaceAllString(string(text), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// anchors returns the names that the headings of a page can be linked by.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		names[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return names
}

func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for path, text := range all {
		for _, l := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(l[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads to no file", path, l[1])
			} else if page, ok := all[target]; anchor != "" && (!ok || !anchors(page)[anchor]) {
				t.Errorf("%s: the link %s leads to no heading", path, l[1])
			}
		}
	}
}

// TestDeployedLinksLeadSomewhere is about the links in units, alerts and the like, which lead
// to the documents at their public address.
func TestDeployedLinksLeadSomewhere(t *testing.T) {
	address := regexp.MustCompile(`https://github\.com/seed-028515a8/maestro/blob/main/([\w/.-]+)(?:#([\w-]+))?`)
	all, found := pages(t), 0
	err := filepath.WalkDir("../deploy", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, l := range address.FindAllStringSubmatch(string(text), -1) {
			found++
			page, ok := all["../"+l[1]]
			if !ok || l[2] != "" && !anchors(page)[l[2]] {
				t.Errorf("%s: the link %s leads to no page or heading", path, l[0])
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("got %d links, %v, want those of the alerts", found, err)
	}
}

func TestIndexListsEveryPage(t *testing.T) {
	index := pages(t)["../docs/README.md"]
	listed := map[string]int{}
	for _, l := range link.FindAllStringSubmatch(index, -1) {
		listed[l[1]]++
	}
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if name != "README.md" && listed[name] != 1 {
			t.Errorf("got %d links to %s in the index, want 1", listed[name], name)
		}
	}
}
