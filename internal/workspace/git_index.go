package workspace

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
)

// Tracked returns at most limit files that git tracks in the repository around
// the root, and that are not in listed. Both lists have paths relative to the
// root, slash-separated and in byte order. Tracked leaves out files that do not
// exist or lie behind a symbolic link. It reads git's index and starts no
// process. When ctx ends, it returns the files found so far.
func (w *Workspace) Tracked(ctx context.Context, listed []string, limit int) (tracked []string) {
	top, git := w.repositoryAround()
	above, err := filepath.Rel(top, w.path)
	if git == "" || err != nil {
		return nil
	}
	prefix := []byte(filepath.ToSlash(above) + "/")
	if above == "." {
		prefix = nil
	}
	f, err := w.openAt(filepath.Join(git, "index"))
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	sha256 := (&walk{w: w, ctx: ctx, budget: budget{ctx: ctx}}).visit().configure(top, git).sha256
	plain := make(map[string]bool) // directories, and whether their paths are without links
	for file := range indexFiles(bufio.NewReaderSize(f, maxIndexPath), sha256) {
		if ctx.Err() != nil || len(tracked) >= limit {
			break
		}
		name, inside := bytes.CutPrefix(file, prefix)
		for len(listed) > 0 && listed[0] < string(name) {
			listed = listed[1:]
		}
		switch {
		case !inside, len(listed) > 0 && listed[0] == string(name):
			continue
		case len(tracked) > 0 && tracked[len(tracked)-1] == string(name): // a conflict has an entry for each side
			continue
		}
		if name := string(name); fs.ValidPath(name) && !VersionControl(name) && w.isPlain(path.Dir(name), plain) {
			if info, err := w.Lstat(filepath.FromSlash(name)); err == nil && !info.IsDir() {
				tracked = append(tracked, name)
			}
		}
	}
	return tracked
}

// isPlain reports whether dir, slash-separated and relative to the root, exists
// and is its own path without symbolic links. known has the earlier results.
func (w *Workspace) isPlain(dir string, known map[string]bool) bool {
	plain, is := known[dir]
	if !is {
		real, err := w.Real(filepath.FromSlash(dir))
		plain = err == nil && filepath.ToSlash(real) == dir
		known[dir] = plain
	}
	return plain
}

// maxIndexPath is more than the longest path in an index that is read, in bytes.
const maxIndexPath = 64 << 10

// indexFiles yields the paths of the regular files and symbolic links in an
// index of git, versions 2 to 4. A path is valid until the next one. indexFiles
// stops at the first entry that it cannot read. It does not read the other part
// of a split index.
func indexFiles(in *bufio.Reader, sha256 bool) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		head := make([]byte, 12) // signature, version, number of entries
		if _, err := io.ReadFull(in, head); err != nil || string(head[:4]) != "DIRC" {
			return
		}
		version := binary.BigEndian.Uint32(head[4:])
		// An entry has times, device, inode, mode at 24, owner and size up to 40,
		// then the object's id and flags.
		entry := make([]byte, 40+20+2)
		if sha256 {
			entry = make([]byte, 40+32+2)
		}
		var name []byte
		for range binary.BigEndian.Uint32(head[8:]) {
			if _, err := io.ReadFull(in, entry); err != nil {
				return
			}
			size := len(entry)
			if extended := entry[size-2]&0x40 != 0; extended {
				size += 2
				_, _ = in.Discard(2) // a later read returns the error
			}
			kept := 0 // in version 4 a path shares its beginning with the one before
			if version == 4 {
				cut, err := indexOffset(in)
				if kept = len(name) - cut; err != nil || kept < 0 {
					return
				}
			}
			rest, err := in.ReadSlice(0)
			if err != nil || len(name) > maxIndexPath {
				return
			}
			name = append(name[:kept], rest[:len(rest)-1]...)
			if version < 4 {
				_, _ = in.Discard(-(size + len(rest)) & 7) // entries fill multiples of 8 bytes
			}
			const kinds, regular, link = 0o170000, 0o100000, 0o120000
			if kind := binary.BigEndian.Uint32(entry[24:]) & kinds; (kind == regular || kind == link) && !yield(name) {
				return
			}
		}
	}
}

// indexOffset reads a number of variable length.
func indexOffset(in io.ByteReader) (n int, err error) {
	for more := true; more; {
		c, err := in.ReadByte()
		if err != nil || n > maxIndexPath {
			return 0, io.ErrUnexpectedEOF
		}
		n, more = n<<7|int(c&127), c >= 128
		if more {
			n++
		}
	}
	return n, nil
}
