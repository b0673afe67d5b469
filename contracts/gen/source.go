package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// A source is what the Go files of package contracts say that reflection
// cannot see: comments and constants.
type source struct {
	types     map[string]string // doc comment of each type
	fields    map[string]string // end-of-line comment of each field, by Type.Field
	constants []constantDoc     // of limits.go, in order
}

// A constantDoc is one limit.
type constantDoc struct{ name, value, comment string }

func readSource(dir string) (*source, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	src := &source{types: make(map[string]string), fields: make(map[string]string)}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			switch {
			case ok && gen.Tok == token.TYPE:
				src.readType(gen)
			case ok && gen.Tok == token.CONST && filepath.Base(path) == "limits.go":
				err = errors.Join(err, src.readConstants(gen))
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return src, nil
}

func (src *source) readType(gen *ast.GenDecl) {
	spec := gen.Specs[0].(*ast.TypeSpec)
	src.types[spec.Name.Name] = prose(gen.Doc)
	if body, ok := spec.Type.(*ast.StructType); ok {
		for _, f := range body.Fields.List {
			for _, name := range f.Names {
				src.fields[spec.Name.Name+"."+name.Name] = prose(f.Comment)
			}
		}
	}
}

// prose returns a comment as one line, without the brackets of doc links.
func prose(c *ast.CommentGroup) string {
	text := strings.NewReplacer("[*", "", "[", "", "]", "").Replace(c.Text())
	return strings.Join(strings.Fields(text), " ")
}

func (src *source) readConstants(gen *ast.GenDecl) error {
	for _, spec := range gen.Specs {
		c := spec.(*ast.ValueSpec)
		value, err := readableValue(c.Values[0])
		if err != nil {
			return fmt.Errorf("limits.go: %s: %w", c.Names[0].Name, err)
		}
		src.constants = append(src.constants, constantDoc{c.Names[0].Name, value, prose(c.Comment)})
	}
	return nil
}

// readableValue evaluates a constant; durations are written as seconds.
func readableValue(expr ast.Expr) (string, error) {
	text := types.ExprString(expr)
	text, seconds := strings.CutSuffix(text, " * time.Second")
	result, err := types.Eval(token.NewFileSet(), nil, token.NoPos, text)
	if err != nil {
		return "", err
	}
	n, exact := constant.Int64Val(result.Value)
	switch {
	case !exact:
		return "", fmt.Errorf("%s is not an integer", text)
	case seconds:
		return fmt.Sprintf("%d s", n), nil
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d (%d MiB)", n, n>>20), nil
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d (%d KiB)", n, n>>10), nil
	}
	return fmt.Sprint(n), nil
}
