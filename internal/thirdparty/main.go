// Thirdparty writes THIRD_PARTY_LICENSES: the licenses of all code of others that is linked
// into the program or bundled into the page. It fails for a license that it does not know,
// and for one that the project does not allow. Run it in the root of the module.
//
//	go run ./internal/thirdparty
//	go run ./internal/thirdparty -sbom FILE -version V     # a bill of materials instead, as CycloneDX
//
// A test fails if the file is not current.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const module = "github.com/seed-028515a8/maestro"

// platforms are those of a release.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

func main() {
	sbom := flag.String("sbom", "", "write a bill of materials to this `file`")
	version := flag.String("version", "devel", "the version of the program in the bill")
	flag.Parse()
	if err := run(*sbom, *version); err != nil {
		fmt.Fprintln(os.Stderr, "thirdparty:", err)
		os.Exit(1)
	}
}

func run(sbom, version string) error {
	parts, err := components(".")
	if err != nil {
		return err
	}
	path, content := "THIRD_PARTY_LICENSES", notices(parts)
	if sbom != "" {
		path = sbom
		if content, err = bill(parts, version); err != nil {
			return err
		}
	}
	return os.WriteFile(path, content, 0o644)
}

// A component is a module or a package of others.
type component struct {
	kind          string // golang or npm
	name, version string
	license       string   // as an SPDX expression
	texts         []string // its licenses and notices
}

// components returns all components, sorted by kind and name.
func components(root string) ([]component, error) {
	modules, err := goModules(root)
	if err != nil {
		return nil, err
	}
	packages, err := pagePackages(filepath.Join(root, "web/dist/assets/licenses.txt"))
	if err != nil {
		return nil, err
	}
	return append(modules, packages...), nil
}

// goModules returns the modules that are linked into the program on any platform, and the
// standard library.
func goModules(root string) ([]component, error) {
	// Of each package: its module and version, the folder of the module and its own.
	const format = `{{if .Module}}{{if not .Module.Main}}{{.Module.Path}} {{.Module.Version}}{{"\t"}}{{.Module.Dir}}{{"\t"}}{{.Dir}}{{end}}{{end}}`
	outputs, failures := make([][]byte, len(platforms)), make([]error, len(platforms))
	var done sync.WaitGroup
	for i, platform := range platforms {
		done.Go(func() {
			system, processor, _ := strings.Cut(platform, "/")
			outputs[i], failures[i] = output(root, []string{"GOOS=" + system, "GOARCH=" + processor, "CGO_ENABLED=0", "GOFLAGS=-tags=grpcnotrace"},
				"go", "list", "-deps", "-f", format, "./cmd/maestro")
		})
	}
	done.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	files := map[string][]string{} // of each module and version
	lines := strings.Split(string(bytes.Join(outputs, nil)), "\n")
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		f := strings.Split(line, "\t")
		if len(f) != 3 {
			continue // the last line is empty
		}
		found, err := licenseFiles(f[1], f[2])
		if err != nil {
			return nil, err
		}
		files[f[0]] = append(files[f[0]], found...)
	}
	library, err := output(root, nil, "go", "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(string(library)), "\n")
	files["std "+strings.TrimPrefix(version, "go")] = []string{filepath.Join(goroot, "LICENSE")}

	var parts []component
	for key, paths := range files {
		name, version, _ := strings.Cut(key, " ")
		part := component{kind: "golang", name: name, version: version}
		slices.Sort(paths)
		ids := map[string]bool{}
		for _, path := range slices.Compact(paths) {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			found, err := classify(string(text))
			if err == nil && len(found) == 0 && !additional.MatchString(filepath.Base(path)) {
				err = errors.New("the license is not known")
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			for _, id := range found {
				ids[id] = true
			}
			part.texts = append(part.texts, lineEnd.ReplaceAllString(strings.Trim(string(text), "\r\n"), "\n"))
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("%s has no license", key)
		}
		part.license = strings.Join(slices.Sorted(maps.Keys(ids)), " AND ")
		parts = append(parts, part)
	}
	slices.SortFunc(parts, func(a, b component) int { return cmp.Compare(a.name, b.name) })
	return parts, nil
}

// output runs a command in a folder and returns its standard output.
func output(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, args[0], err, failure.Bytes())
	}
	return out, nil
}

var (
	licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)
	// additional are files that a license is not in: notices, and grants of patents.
	additional = regexp.MustCompile(`(?i)^(notice|patents)`)
	lineEnd    = regexp.MustCompile(`[ \t\r]*\n`)
)

// licenseFiles returns the files with licenses and notices in the folder of a package and
// in those above it, up to the folder of its module.
func licenseFiles(top, dir string) ([]string, error) {
	var found []string
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && licenseName.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
				found = append(found, filepath.Join(dir, e.Name()))
			}
		}
		if dir == top {
			return found, nil
		}
		dir = filepath.Dir(dir)
	}
}

// known are the licenses that the project allows, each with texts that it always has.
var known = map[string][]string{
	"Apache-2.0":   {"apache license version 2.0, january 2004", "grant of patent license"},
	"MIT":          {"permission is hereby granted, free of charge, to any person obtaining a copy", "without restriction", "the software is provided as is"},
	"ISC":          {"this software for any purpose with or without fee is hereby granted, provided"},
	"BSD-3-Clause": {"redistributions of source code must retain", "redistributions in binary form must reproduce", "endorse or promote products"},
	"BSD-2-Clause": {"redistributions of source code must retain", "redistributions in binary form must reproduce"},
}

var (
	forbidden = regexp.MustCompile(`gnu (lesser |library |affero )?general public|server side public|business source|elastic license|commons clause|non-?commercial|mozilla public|eclipse public|share-?alike`)
	spare     = regexp.MustCompile(`[\s"“”'*#>]+`)
)

// classify returns the licenses in the text of a file, none if it has no known one.
func classify(text string) ([]string, error) {
	text = strings.ToLower(spare.ReplaceAllString(text, " "))
	if bad := forbidden.FindString(text); bad != "" {
		return nil, fmt.Errorf("the project does not allow this license: %q", bad)
	}
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(known)) {
		if !slices.ContainsFunc(known[id], func(t string) bool { return !strings.Contains(text, t) }) {
			ids = append(ids, id)
		}
	}
	if slices.Contains(ids, "BSD-3-Clause") { // its texts contain those of the other
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == "BSD-2-Clause" })
	}
	return ids, nil
}

var packageHead = regexp.MustCompile(`^(\S+) (\S+) \((.+)\)\n`)

// pagePackages reads the file in which the build of the page lists the packages in it.
func pagePackages(path string) ([]component, error) {
	all, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var parts []component
	for section := range strings.SplitSeq(string(all), "\n"+strings.Repeat("-", 80)+"\n\n") {
		head := packageHead.FindStringSubmatch(section)
		if head == nil {
			return nil, fmt.Errorf("%s: a section begins with %.80q, want a name, a version and a license", path, section)
		}
		if err := allowed(head[3]); err != nil {
			return nil, fmt.Errorf("%s: %w", head[1], err)
		}
		text := strings.TrimSpace(strings.TrimPrefix(section, head[0]))
		if text == "" {
			return nil, fmt.Errorf("%s has no text of its license", head[1])
		}
		parts = append(parts, component{kind: "npm", name: head[1], version: head[2], license: strings.Trim(head[3], "()"), texts: []string{text}})
	}
	return parts, nil
}

// allowed reports why the project does not allow an SPDX expression. Of alternatives one is enough.
func allowed(expression string) error {
	for choice := range strings.SplitSeq(strings.Trim(expression, "()"), " OR ") {
		if !slices.ContainsFunc(strings.Split(choice, " AND "), func(id string) bool { return known[id] == nil }) {
			return nil
		}
	}
	return fmt.Errorf("the project does not allow the license %s", expression)
}

// notices returns the file of all licenses. Components with the same text share it.
func notices(parts []component) []byte {
	heads := map[string][]string{} // by text
	var texts []string
	for _, p := range parts {
		name := p.name + " " + p.version
		if p.name == "std" {
			name = "the Go standard library" // its version is that of the installed Go
		}
		for _, text := range p.texts {
			if heads[text] == nil {
				texts = append(texts, text)
			}
			heads[text] = append(heads[text], fmt.Sprintf("%s (%s)", name, p.license))
		}
	}
	var b bytes.Buffer
	b.WriteString("Maestro contains the following code of others. Generated by internal/thirdparty.\n")
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(heads[text], "\n"), text)
	}
	return b.Bytes()
}

type object map[string]any

// bill returns the bill of materials as CycloneDX 1.6. Its time is SOURCE_DATE_EPOCH, so that
// one commit gives one bill.
func bill(parts []component, version string) ([]byte, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	entry := func(kind string, p component) object {
		name := p.name
		if p.kind == "npm" {
			name = strings.ReplaceAll(name, "@", "%40")
		}
		url := fmt.Sprintf("pkg:%s/%s@%s", p.kind, name, p.version)
		return object{"type": kind, "bom-ref": url, "purl": url, "name": p.name, "version": p.version,
			"licenses": []object{{"expression": p.license}}}
	}
	var entries []object
	for _, p := range parts {
		entries = append(entries, entry("library", p))
	}
	content, err := json.MarshalIndent(object{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": object{
			"timestamp": time.Unix(seconds, 0).UTC().Format(time.RFC3339),
			"component": entry("application", component{kind: "golang", name: module, version: "v" + version, license: "Apache-2.0"}),
		},
		"components": entries,
	}, "", "  ")
	return append(content, '\n'), err
}
