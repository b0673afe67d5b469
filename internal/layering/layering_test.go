// Package layering_test holds the imports of every package against the table
// of rooms, so that the picture of which way imports point cannot drift.
package layering_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/seed-028515a8/maestro"

// A room is what one package may import beside the standard library.
type room struct {
	ours   []string // by path from the module's root; anything stands for all
	others []string // modules of others
}

const anything = "*"

const (
	acp        = "github.com/coder/acp-go-sdk"
	mcp        = "github.com/modelcontextprotocol/go-sdk"
	creack     = "github.com/creack/pty"
	cobra      = "github.com/spf13/cobra"
	flags      = "github.com/spf13/pflag"
	fsnotify   = "github.com/fsnotify/fsnotify"
	gitignore  = "github.com/sabhiram/go-gitignore"
	jsonschema = "github.com/google/jsonschema-go"
	jwt        = "github.com/golang-jwt/jwt/v5"
	otel       = "go.opentelemetry.io/otel"
	prometheus = "github.com/prometheus/client_golang"
	rate       = "golang.org/x/time"
	system     = "golang.org/x/sys"
	uuid       = "github.com/google/uuid"
	websocket  = "github.com/coder/websocket"
)

// rooms is the table: contracts is the floor, the hub's parts never meet except
// in the hub, and only main knows everyone. A package that is not in it may
// import nothing but the standard library.
var rooms = map[string]room{
	"contracts":        {},
	"contracts/schema": {}, // generated
	"contracts/gen":    {ours: []string{"conformance", "conformance/acp", "conformance/chord", "conformance/hecate", "conformance/heddle", "contracts"}, others: []string{jsonschema}},

	// Rules: plain values.
	"handshake":        {ours: []string{"contracts"}},
	"lease":            {},
	"serverreq":        {ours: []string{"contracts"}},
	"internal/session": {ours: []string{"contracts"}},

	// Translations, without I/O.
	"internal/dialect":        {ours: []string{"contracts"}},
	"internal/dialect/heddle": {ours: []string{"contracts", "internal/dialect", "internal/abridge"}},
	"internal/dialect/chord":  {ours: []string{"contracts", "internal/dialect", "internal/abridge"}},
	"internal/dialect/hecate": {ours: []string{"contracts", "internal/dialect", "internal/abridge", "internal/lazyregexp"}},

	"internal/journal":           {others: []string{system}}, // locks, and the id of a boot
	"internal/testkit/suitetest": {ours: []string{"conformance"}},
	"internal/testkit/storetest": {ours: []string{"internal/journal"}},

	"hub": {
		ours:   []string{"contracts", "handshake", "internal/journal", "lease", "serverreq", "internal/session", "internal/abridge"},
		others: []string{rate},
	},
	"internal/overview": {ours: []string{"contracts", "handshake", "hub", "internal/sleep"}, others: []string{rate}},

	// Edges: none of them knows the hub.
	"agent":                             {ours: []string{"internal/agent/acp", "internal/agent/chord", "internal/agent/command", "internal/agent/heddle", "internal/agent/launcher", "internal/agent/llm", "internal/agent/llm/model", "internal/agent/llm/provider", "internal/agent/llm/tool", "internal/agent/mask", "internal/agent/mcp", "internal/agent/program", "internal/agent/turn", "contracts", "internal/proc", "internal/line", "internal/workspace", "internal/abridge", "internal/sleep"}},
	"internal/agent/acp":                {ours: []string{"internal/agent/command", "internal/agent/diff", "internal/agent/elicit", "internal/agent/mask", "internal/agent/mcp", "internal/agent/memory", "internal/agent/turn", "contracts", "internal/proc", "internal/rpc", "internal/workspace", "internal/abridge", "internal/sleep"}, others: []string{acp}},
	"internal/agent/chord":              {ours: []string{"internal/agent/mask", "internal/agent/program", "internal/agent/turn", "contracts", "internal/dialect/chord", "internal/abridge"}},
	"internal/agent/heddle":             {ours: []string{"internal/agent/program", "internal/agent/turn", "contracts", "internal/dialect/heddle", "internal/abridge"}},
	"internal/agent/memory":             {},
	"internal/agent/program":            {ours: []string{"internal/agent/mask", "internal/agent/memory", "internal/agent/turn", "contracts", "internal/dialect", "internal/abridge", "internal/line", "internal/proc"}},
	"internal/agent/command":            {ours: []string{"contracts", "internal/proc"}},
	"internal/agent/diff":               {},
	"internal/agent/elicit":             {ours: []string{"contracts", "internal/abridge"}, others: []string{jsonschema}},
	"internal/testkit/built":            {},
	"internal/testkit/fakeprogram":      {},
	"internal/testkit/hosttest":         {ours: []string{"contracts"}, others: []string{system}},
	"internal/agent/launcher":           {ours: []string{"internal/lazyregexp"}},
	"internal/agent/llm":                {ours: []string{"internal/agent/llm/model", "internal/agent/llm/provider", "internal/agent/llm/tool", "internal/agent/mask", "internal/agent/mcp", "internal/agent/turn", "contracts", "internal/proc", "internal/lazyregexp", "internal/workspace", "internal/abridge", "internal/sleep"}, others: []string{"mvdan.cc/sh/v3"}},
	"internal/agent/llm/model":          {},
	"internal/agent/llm/provider":       {ours: []string{"internal/agent/llm/model", "internal/lazyregexp", "internal/abridge"}},
	"internal/agent/llm/tool":           {ours: []string{"internal/agent/command", "internal/agent/diff", "internal/agent/llm/model", "contracts", "internal/proc", "internal/lazyregexp", "internal/workspace", "internal/abridge"}},
	"internal/agent/mask":               {ours: []string{"internal/proc", "internal/lazyregexp"}},
	"internal/agent/mcp":                {ours: []string{"internal/agent/command", "internal/agent/elicit", "internal/agent/launcher", "internal/agent/mask", "contracts", "internal/proc", "internal/lazyregexp", "internal/line", "internal/abridge", "internal/sleep"}, others: []string{jsonschema, mcp, rate}},
	"internal/agent/turn":               {ours: []string{"contracts"}, others: []string{uuid}},
	"internal/agent/acpserver":          {ours: []string{"client", "contracts", "internal/agent/elicit", "internal/rpc", "internal/session", "internal/abridge"}, others: []string{acp}},
	"internal/testkit/localmodel":       {ours: []string{"internal/abridge", "internal/sleep"}},
	"internal/testkit/localmodel/serve": {ours: []string{"internal/testkit/localmodel"}},
	"internal/hosted":                   {ours: []string{"contracts", "internal/abridge", "internal/session"}, others: []string{flags}},
	"internal/console":                  {others: []string{"golang.org/x/term", "golang.org/x/text"}},
	"internal/lazyregexp":               {},
	"internal/line":                     {},
	"internal/rpc":                      {ours: []string{"contracts", "internal/line", "internal/abridge"}},
	"internal/abridge":                  {},
	"internal/show":                     {ours: []string{"internal/agent/diff", "contracts", "internal/abridge"}},
	"internal/sleep":                    {},
	"internal/proc":                     {others: []string{system}},
	"internal/testkit/memconn":          {ours: []string{"contracts"}},
	"internal/observe":                  {ours: []string{"contracts", "internal/abridge"}, others: []string{otel, prometheus}},
	"internal/transport/connlimit":      {ours: []string{"contracts", "internal/transport/httperr", "internal/transport/ratelimit"}},
	"internal/transport/auth":           {ours: []string{"contracts", "internal/lazyregexp", "internal/transport/connlimit", "internal/transport/httperr", "internal/transport/ratelimit"}, others: []string{jwt}},
	"internal/transport/foreign":        {ours: []string{"contracts", "internal/dialect"}},
	"internal/transport/hecate":         {ours: []string{"contracts", "internal/dialect/hecate", "internal/sleep", "internal/journal", "internal/transport/connlimit", "internal/transport/httperr", "internal/transport/ratelimit", "internal/transport/sse"}},
	"internal/transport/httpapi":        {ours: []string{"contracts", "internal/transport/connlimit", "internal/transport/httperr", "internal/transport/ratelimit", "internal/transport/sse"}},
	"internal/transport/httperr":        {ours: []string{"contracts"}},
	"internal/transport/notify":         {ours: []string{"contracts", "internal/abridge", "internal/transport/ratelimit"}},
	"internal/transport/ratelimit":      {ours: []string{"contracts"}, others: []string{rate}},
	"internal/transport/sse":            {ours: []string{"contracts", "internal/transport/connlimit", "internal/transport/httperr"}},
	"internal/transport/stdio":          {ours: []string{"contracts", "internal/line"}, others: []string{system}},
	"internal/transport/ws":             {ours: []string{"contracts", "internal/transport/connlimit", "internal/transport/httperr", "internal/transport/ratelimit"}, others: []string{websocket}},
	"web":                               {ours: []string{"contracts", "internal/transport/httperr"}},
	"utility":                           {ours: []string{"contracts", "internal/proc", "internal/pty", "internal/workspace", "internal/abridge"}, others: []string{fsnotify, system}},
	"internal/pty":                      {ours: []string{"internal/proc"}, others: []string{creack, system}},
	"internal/workspace":                {ours: []string{"internal/abridge", "internal/lazyregexp"}, others: []string{gitignore}},

	// The other side of the wire.
	"examples/go":                {ours: []string{"client", "contracts"}},
	"client":                     {ours: []string{"contracts", "internal/session", "internal/sleep"}, others: []string{websocket}},
	"conformance":                {ours: []string{"internal/conformance/shape", "contracts", "internal/proc", "internal/session", "internal/sleep"}, others: []string{uuid, websocket}},
	"internal/conformance/chaos": {ours: []string{"internal/sleep"}, others: []string{websocket}}, // a proxy in front of any server
	"internal/conformance/lines": {ours: []string{"conformance", "internal/proc", "internal/sleep"}},
	"conformance/acp":            {ours: []string{"conformance", "internal/conformance/lines"}, others: []string{websocket}},
	"conformance/chord":          {ours: []string{"conformance", "internal/conformance/lines"}},
	"conformance/heddle":         {ours: []string{"conformance", "internal/conformance/lines"}},
	"conformance/hecate":         {ours: []string{"client", "conformance", "contracts", "internal/lazyregexp", "internal/proc", "internal/sleep"}, others: []string{uuid}},
	"internal/conformance/shape": {ours: []string{"contracts", "contracts/schema"}, others: []string{jsonschema}},

	// A module of its own: measurements, and the servers of others beside ours.
	"bench":           {ours: []string{"bench/control", "contracts", "internal/journal"}, others: []string{system}},
	"bench/peers":     {ours: []string{"bench/control", "contracts"}, others: []string{websocket, "github.com/gorilla/websocket", "github.com/lxzan/gws", "github.com/nats-io", "github.com/olahol/melody"}},
	"bench/control":   {},
	"bench/drains":    {ours: []string{"client", "contracts", "internal/sleep"}, others: []string{websocket}},
	"bench/hubserver": {ours: []string{"bench/control", "contracts", "hub", "internal/journal", "internal/transport/connlimit", "internal/transport/httpapi", "internal/transport/ratelimit", "internal/transport/sse", "internal/transport/ws"}},
	"bench/kills":     {ours: []string{"client", "contracts", "internal/sleep"}, others: []string{websocket}},

	// What composes the rest, for the program and for embedding.
	"internal/wiring": {
		ours: []string{
			"agent", "internal/agent/acpserver", "internal/agent/mask", "contracts", "internal/dialect", "internal/dialect/hecate", "hub", "internal/overview", "internal/abridge", "internal/proc",
			"internal/journal", "internal/observe", "internal/transport/auth", "internal/transport/connlimit", "internal/transport/foreign", "internal/transport/hecate", "internal/transport/httpapi", "internal/transport/httperr",
			"internal/transport/notify", "internal/transport/ratelimit", "internal/transport/sse", "internal/transport/ws", "utility", "web", "internal/workspace",
		},
		others: []string{uuid},
	},
	"server":         {ours: []string{"agent", "internal/agent/turn", "contracts", "hub", "internal/wiring", "internal/transport/auth"}},
	"examples/embed": {ours: []string{"server"}},

	"cmd/maestro": {ours: []string{anything}, others: []string{cobra, flags, jsonschema, "github.com/google/uuid", "github.com/BurntSushi/toml"}},
}

// check reports why pkg may not import path, or nil if it may. pkg is a path
// from the module's root.
func check(pkg, path string) error {
	room, listed := rooms[pkg]
	if ours, ok := strings.CutPrefix(path, module+"/"); ok {
		switch {
		case strings.HasPrefix(ours, "cmd/"):
			return fmt.Errorf("%s imports %s: nobody imports a command", pkg, ours)
		case slices.Contains(room.ours, ours), slices.Contains(room.ours, anything):
			return nil
		}
		return fmt.Errorf("%s imports %s: %s", pkg, ours, missing(listed))
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return nil // the standard library
	}
	for _, m := range room.others {
		if path == m || strings.HasPrefix(path, m+"/") {
			return nil
		}
	}
	return fmt.Errorf("%s imports %s: %s", pkg, path, missing(listed))
}

func missing(listed bool) string {
	if listed {
		return "its row in the table does not allow it"
	}
	return "it has no row in the table"
}

func TestImportsFollowTheTable(t *testing.T) {
	found := imports(t)
	if len(found["contracts"]) == 0 {
		t.Fatal("got no imports of contracts, want some: the search does not find the sources")
	}
	for _, pkg := range slices.Sorted(maps.Keys(found)) {
		for _, path := range slices.Sorted(maps.Keys(found[pkg])) {
			if err := check(pkg, path); err != nil {
				t.Errorf("got %v (%s)", err, found[pkg][path])
			}
		}
	}
}

func TestRoomsExist(t *testing.T) {
	found := imports(t)
	for pkg := range rooms {
		if found[pkg] == nil {
			t.Errorf("got no package %s, want one or no row for it", pkg)
		}
	}
}

func TestBadImportIsCaught(t *testing.T) {
	for _, tt := range []struct {
		pkg, path string
		allowed   bool
	}{
		{"contracts", "encoding/json", true},
		{"contracts", "github.com/google/uuid", false},
		{"contracts", module + "/internal/session", false},
		{"handshake", module + "/contracts", true},
		{"handshake", module + "/lease", false},
		{"hub", module + "/lease", true},
		{"hub", module + "/agent", false},
		{"hub", module + "/internal/transport/ws", false},
		{"internal/transport/ws", module + "/hub", false},
		{"internal/transport/ws", "github.com/coder/websocket/wsjson", true},
		{"internal/transport/ws", "github.com/coder/websocketry", false},
		{"agent", module + "/hub", false},
		{"conformance", module + "/hub", false},
		{"cmd/maestro", module + "/hub", true},
		{"cmd/maestro", "github.com/gorilla/websocket", false},
		{"bench", module + "/cmd/maestro", false},
		{"cmd/other", module + "/cmd/maestro", false},
		{"newcomer", module + "/contracts", false},
		{"newcomer", "strings", true},
	} {
		if err := check(tt.pkg, tt.path); (err == nil) != tt.allowed {
			t.Errorf("check(%q, %q): got %v, want allowed %v", tt.pkg, tt.path, err, tt.allowed)
		}
	}
}

// imports returns, for each package of both modules, what it imports outside its
// tests and in which file. Files for all platforms count.
func imports(t *testing.T) map[string]map[string]string {
	t.Helper()
	root := moduleRoot(t)
	found := map[string]map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return ignored(root, path, d.Name())
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(file))
		if found[pkg] == nil {
			found[pkg] = map[string]string{}
		}
		return addImports(found[pkg], path, file)
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// ignored returns fs.SkipDir for directories that the go tool leaves out.
func ignored(root, path, name string) error {
	if path == root {
		return nil
	}
	if name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return fs.SkipDir
	}
	return nil
}

// addImports notes in found what the file at path imports.
func addImports(found map[string]string, path, name string) error {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		found[imported] = name
	}
	return nil
}

// moduleRoot is the nearest directory above that has a go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("got no go.mod in any directory above, want one")
		}
		dir = up
	}
}
