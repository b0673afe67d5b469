package workspace

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// entriesBytes is the size of the buffer for one read of a directory.
const entriesBytes = 32 << 10

// moreEntries is added to twice the limit of a listing, for the entries read of
// one directory. Some of them may be ignored.
const moreEntries = 4096

// An entry is one name in a directory.
type entry struct {
	name string
	kind fs.FileMode // the type bits alone
}

func (e entry) isDir() bool { return e.kind == fs.ModeDir }

func (e entry) isFile() bool { return e.kind == 0 || e.kind == fs.ModeSymlink }

// has reports whether sorted entries contain the name.
func has(entries []entry, name string) bool {
	_, found := slices.BinarySearchFunc(entries, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
	return found
}

// entries reads a directory, sorted by name. It stops early if the listing
// ends.
func (v *visit) entries(f folder, buf []byte) []entry {
	dir, err := v.w.OpenFile(v.name(f)) // it may be a pipe by now
	if err != nil {
		return nil
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil || !info.IsDir() {
		return nil
	}
	var all []entry
	for more := true; more; {
		if v.ctx.Err() != nil || len(all) > 2*v.limit+moreEntries {
			v.cut = true
			break
		}
		all, more = readEntries(dir, buf, all)
	}
	for i, e := range all {
		if e.kind == fs.ModeIrregular { // or the file system did not say
			if info, err := v.w.Lstat(filepath.Join(v.name(f), e.name)); err == nil {
				all[i].kind = info.Mode().Type()
			}
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all
}
