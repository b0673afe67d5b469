package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mounted finds the paths in calls that add a route to a mux. The first group says that the
// path begins with the one of a session.
var mounted = regexp.MustCompile(`\b(?:mount\(mux, |mux\.Handle\()(session\+)?"([^"]+)"`)

// otherNames are paths that the descriptions have under another name.
var otherNames = []string{"sessions/{id}/message", "sessions/{id}/ws"}

// TestDescriptionsHaveEveryRoute looks for the routes in the source. TestWireFitsTheSchemas
// asks a server for those that the descriptions have.
func TestDescriptionsHaveEveryRoute(t *testing.T) {
	var known []string
	for _, r := range routes {
		known = append(known, r.path)
	}
	for _, s := range sockets {
		known = append(known, strings.TrimPrefix(s.path, prefix))
	}
	files, err := filepath.Glob(filepath.Join(root, "internal/transport/httpapi/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range append(files, filepath.Join(root, "internal/wiring/network.go")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mounted.FindAllStringSubmatch(string(text), -1) {
			path := m[2]
			if m[1] != "" {
				path = prefix + "sessions/{id}" + path
			}
			path, ours := strings.CutPrefix(path, prefix)
			if !ours || slices.Contains(otherNames, path) {
				continue
			}
			if found++; !slices.Contains(known, path) {
				t.Errorf("%s adds the route %s, which is not in openapi.go", file, path)
			}
		}
	}
	if found < 25 {
		t.Errorf("found %d routes in the source", found)
	}
}
