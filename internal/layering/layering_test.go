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
	"handshake": {ours: []string{"contracts"}},
	"lease":     {},
	"serverreq": {ours: []string{"contracts"}},
	"session":   {ours: []string{"contracts"}},

	// Translations, without I/O.
	"dialect":        {ours: []string{"contracts"}},
	"dialect/heddle": {ours: []string{"contracts", "dialect", "internal/abridge"}},
	"dialect/chord":  {ours: []string{"contracts", "dialect", "internal/abridge"}},
	"dialect/hecate": {ours: []string{"contracts", "dialect", "internal/abridge", "internal/lazyregexp"}},

	"journal":                    {others: []string{system}}, // locks, and the id of a boot
	"internal/testkit/suitetest": {ours: []string{"conformance"}},
	"internal/testkit/storetest": {ours: []string{"journal"}},

	"hub": {
		ours:   []string{"contracts", "handshake", "journal", "lease", "serverreq", "session", "internal/abridge"},
		others: []string{rate},
	},
	"hub/overview": {ours: []string{"contracts", "handshake", "hub", "internal/sleep"}, others: []string{rate}},

	// Edges: none of them knows the hub.
	"agent":                             {ours: []string{"agent/acp", "agent/chord", "agent/command", "agent/heddle", "agent/launcher", "agent/llm", "agent/llm/model", "agent/llm/provider", "agent/llm/tool", "agent/mask", "agent/mcp", "agent/program", "agent/turn", "contracts", "internal/proc", "internal/line", "workspace", "internal/abridge", "internal/sleep"}},
	"agent/acp":                         {ours: []string{"agent/command", "agent/diff", "agent/elicit", "agent/mask", "agent/mcp", "agent/memory", "agent/turn", "contracts", "internal/proc", "internal/rpc", "workspace", "internal/abridge", "internal/sleep"}, others: []string{acp}},
	"agent/chord":                       {ours: []string{"agent/mask", "agent/program", "agent/turn", "contracts", "dialect/chord", "internal/abridge"}},
	"agent/heddle":                      {ours: []string{"agent/program", "agent/turn", "contracts", "dialect/heddle", "internal/abridge"}},
	"agent/memory":                      {},
	"agent/program":                     {ours: []string{"agent/mask", "agent/memory", "agent/turn", "contracts", "dialect", "internal/abridge", "internal/line", "internal/proc"}},
	"agent/command":                     {ours: []string{"contracts", "internal/proc"}},
	"agent/diff":                        {},
	"agent/elicit":                      {ours: []string{"contracts", "internal/abridge"}, others: []string{jsonschema}},
	"internal/testkit/built":            {},
	"internal/testkit/fakeprogram":      {},
	"internal/testkit/hosttest":         {ours: []string{"contracts"}, others: []string{system}},
	"agent/launcher":                    {ours: []string{"internal/lazyregexp"}},
	"agent/llm":                         {ours: []string{"agent/llm/model", "agent/llm/provider", "agent/llm/tool", "agent/mask", "agent/mcp", "agent/turn", "contracts", "internal/proc", "internal/lazyregexp", "workspace", "internal/abridge", "internal/sleep"}, others: []string{"mvdan.cc/sh/v3"}},
	"agent/llm/model":                   {},
	"agent/llm/provider":                {ours: []string{"agent/llm/model", "internal/lazyregexp", "internal/abridge"}},
	"agent/llm/tool":                    {ours: []string{"agent/command", "agent/diff", "agent/llm/model", "contracts", "internal/proc", "internal/lazyregexp", "workspace", "internal/abridge"}},
	"agent/mask":                        {ours: []string{"internal/proc", "internal/lazyregexp"}},
	"agent/mcp":                         {ours: []string{"agent/command", "agent/elicit", "agent/launcher", "agent/mask", "contracts", "internal/proc", "internal/lazyregexp", "internal/line", "internal/abridge", "internal/sleep"}, others: []string{jsonschema, mcp, rate}},
	"agent/turn":                        {ours: []string{"contracts"}, others: []string{uuid}},
	"agent/acpserver":                   {ours: []string{"client", "contracts", "agent/elicit", "internal/rpc", "session", "internal/abridge"}, others: []string{acp}},
	"internal/testkit/localmodel":       {ours: []string{"internal/abridge", "internal/sleep"}},
	"internal/testkit/localmodel/serve": {ours: []string{"internal/testkit/localmodel"}},
	"hosted":                            {ours: []string{"contracts", "internal/abridge", "session"}, others: []string{flags}},
	"internal/console":                  {others: []string{"golang.org/x/term", "golang.org/x/text"}},
	"internal/lazyregexp":               {},
	"internal/line":                     {},
	"internal/rpc":                      {ours: []string{"contracts", "internal/line", "internal/abridge"}},
	"internal/abridge":                  {},
	"internal/show":                     {ours: []string{"agent/diff", "contracts", "internal/abridge"}},
	"internal/sleep":                    {},
	"internal/proc":                     {others: []string{system}},
	"internal/testkit/memconn":          {ours: []string{"contracts"}},
	"observe":                           {ours: []string{"contracts", "internal/abridge"}, others: []string{otel, prometheus}},
	"transport/connlimit":               {ours: []string{"contracts", "transport/httperr", "transport/ratelimit"}},
	"transport/auth":                    {ours: []string{"contracts", "internal/lazyregexp", "transport/connlimit", "transport/httperr", "transport/ratelimit"}, others: []string{jwt}},
	"transport/foreign":                 {ours: []string{"contracts", "dialect"}},
	"transport/hecate":                  {ours: []string{"contracts", "dialect/hecate", "internal/sleep", "journal", "transport/connlimit", "transport/httperr", "transport/ratelimit", "transport/sse"}},
	"transport/httpapi":                 {ours: []string{"contracts", "transport/connlimit", "transport/httperr", "transport/ratelimit", "transport/sse"}},
	"transport/httperr":                 {ours: []string{"contracts"}},
	"transport/notify":                  {ours: []string{"contracts", "internal/abridge", "transport/ratelimit"}},
	"transport/ratelimit":               {ours: []string{"contracts"}, others: []string{rate}},
	"transport/sse":                     {ours: []string{"contracts", "transport/connlimit", "transport/httperr"}},
	"transport/stdio":                   {ours: []string{"contracts", "internal/line"}, others: []string{system}},
	"transport/ws":                      {ours: []string{"contracts", "transport/connlimit", "transport/httperr", "transport/ratelimit"}, others: []string{websocket}},
	"web":                               {ours: []string{"contracts", "transport/httperr"}},
	"utility":                           {ours: []string{"contracts", "internal/proc", "pty", "workspace", "internal/abridge"}, others: []string{fsnotify, system}},
	"pty":                               {ours: []string{"internal/proc"}, others: []string{creack, system}},
	"workspace":                         {ours: []string{"internal/abridge", "internal/lazyregexp"}, others: []string{gitignore}},

	// The other side of the wire.
	"examples/go":        {ours: []string{"client", "contracts"}},
	"client":             {ours: []string{"contracts", "session", "internal/sleep"}, others: []string{websocket}},
	"conformance":        {ours: []string{"conformance/shape", "contracts", "internal/proc", "session"}, others: []string{uuid, websocket}},
	"conformance/chaos":  {others: []string{websocket}}, // a proxy in front of any server
	"conformance/lines":  {ours: []string{"conformance", "internal/proc"}},
	"conformance/acp":    {ours: []string{"conformance", "conformance/lines"}, others: []string{websocket}},
	"conformance/chord":  {ours: []string{"conformance", "conformance/lines"}},
	"conformance/heddle": {ours: []string{"conformance", "conformance/lines"}},
	"conformance/hecate": {ours: []string{"client", "conformance", "contracts", "internal/lazyregexp", "internal/proc", "internal/sleep"}, others: []string{uuid}},
	"conformance/shape":  {ours: []string{"contracts", "contracts/schema"}, others: []string{jsonschema}},

	// A module of its own: measurements, and the servers of others beside ours.
	"bench":           {ours: []string{"bench/control", "contracts", "journal"}, others: []string{system}},
	"bench/peers":     {ours: []string{"bench/control", "contracts"}, others: []string{websocket, "github.com/gorilla/websocket", "github.com/lxzan/gws", "github.com/nats-io", "github.com/olahol/melody"}},
	"bench/control":   {},
	"bench/drains":    {ours: []string{"client", "contracts", "internal/sleep"}, others: []string{websocket}},
	"bench/hubserver": {ours: []string{"bench/control", "contracts", "hub", "journal", "transport/connlimit", "transport/httpapi", "transport/ratelimit", "transport/sse", "transport/ws"}},
	"bench/kills":     {ours: []string{"client", "contracts"}, others: []string{websocket}},

	// What composes the rest, for the program and for embedding.
	"internal/wiring": {
		ours: []string{
			"agent", "agent/acpserver", "agent/mask", "contracts", "dialect", "dialect/hecate", "hub", "hub/overview", "internal/abridge", "internal/proc",
			"journal", "observe", "transport/auth", "transport/connlimit", "transport/foreign", "transport/hecate", "transport/httpapi", "transport/httperr",
			"transport/notify", "transport/ratelimit", "transport/sse", "transport/ws", "utility", "web", "workspace",
		},
		others: []string{uuid},
	},
	"server":         {ours: []string{"agent", "agent/turn", "contracts", "hub", "internal/wiring", "transport/auth"}},
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
		{"contracts", module + "/session", false},
		{"handshake", module + "/contracts", true},
		{"handshake", module + "/lease", false},
		{"hub", module + "/lease", true},
		{"hub", module + "/agent", false},
		{"hub", module + "/transport/ws", false},
		{"transport/ws", module + "/hub", false},
		{"transport/ws", "github.com/coder/websocket/wsjson", true},
		{"transport/ws", "github.com/coder/websocketry", false},
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
