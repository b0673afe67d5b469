package docs_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/api")

// public are the packages with the promise of compatibility.md.
var public = []string{
	"client", "conformance", "conformance/acp", "conformance/chord", "conformance/hecate", "conformance/heddle", "contracts", "server",
}

const module = "github.com/seed-028515a8/maestro/"

// TestPublicAPIIsRecorded holds the exported identifiers of the public packages against
// docs/api.
func TestPublicAPIIsRecorded(t *testing.T) {
	for _, pkg := range public {
		path := filepath.Join("api", strings.ReplaceAll(pkg, "/", "-")+".txt")
		got := exported(t, pkg)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("the API of %s is not what %s records: look at the change in git diff after make api", pkg, path)
		}
	}
}

// exported returns the exported declarations of a package, sorted and without comments. It
// reports those with types of packages that are not public.
func exported(t *testing.T, pkg string) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pkg), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var decls []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, d := range file.Decls {
			for _, part := range parts(d) {
				reportInternal(t, path, file, part)
				var text strings.Builder
				form := printer.Config{Mode: printer.UseSpaces | printer.TabIndent, Tabwidth: 8} // as gofmt
				if err := form.Fprint(&text, set, part); err != nil {
					t.Fatal(err)
				}
				decls = append(decls, text.String()+"\n")
			}
		}
	}
	slices.Sort(decls)
	return []byte(strings.Join(decls, ""))
}

// parts returns the declarations in d, each with one specification and without function
// bodies. Constants stay together: their values may depend on each other.
func parts(d ast.Decl) []ast.Node {
	g, ok := d.(*ast.GenDecl)
	if !ok {
		f := d.(*ast.FuncDecl)
		if f.Body = nil; f.Recv != nil && !ast.IsExported(receiver(f)) {
			return nil
		}
		return []ast.Node{f}
	}
	switch g.Tok {
	case token.IMPORT:
		return nil
	case token.CONST:
		return []ast.Node{g}
	}
	var list []ast.Node
	for _, s := range g.Specs {
		if v, ok := s.(*ast.ValueSpec); ok && v.Type == nil { // its type is only in the value
			v.Values = v.Values[:min(1, len(v.Values))]
		}
		list = append(list, &ast.GenDecl{Tok: g.Tok, Specs: []ast.Spec{s}})
	}
	return list
}

// receiver returns the name of the type that a method belongs to.
func receiver(f *ast.FuncDecl) (name string) {
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// reportInternal reports the types in n that other programs cannot name.
func reportInternal(t *testing.T, path string, file *ast.File, n ast.Node) {
	t.Helper()
	imported := map[string]string{}
	for _, spec := range file.Imports {
		full, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		name := full[strings.LastIndex(full, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = full
	}
	ast.Inspect(n, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := s.X.(*ast.Ident)
		if !ok {
			return true
		}
		if ours, isOurs := strings.CutPrefix(imported[of.Name], module); isOurs && !slices.Contains(public, ours) {
			t.Errorf("%s: an exported declaration has %s.%s, which is not public", path, of.Name, s.Sel.Name)
		}
		return true
	})
}
