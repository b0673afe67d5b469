package utility

import (
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

const (
	// blockFiles is the number of files in a new block. A block of twice as many
	// is split.
	blockFiles = 1024

	// maxPathSize is the longest path in an index, in bytes.
	maxPathSize = 1<<16 - 1
)

// An index is a list of files in the byte order of their paths, with data for
// scoring them. It is immutable: an [edit] makes a new index that shares the
// unchanged blocks. It takes 88 bytes for each file besides its path.
type index struct {
	blocks []*block // none is empty
	count  int      // of files, including those that are gone
}

// A block is a run of the files of an index. Scoring reads the sieves first, so
// they are contiguous.
type block struct {
	sieves []sieve
	files  []candidate // one for each sieve
}

// A candidate is a file that a search may find.
type candidate struct {
	path  string
	lower string // the path in lower case; shares memory with path if equal
}

// A sieve bounds the score of a candidate without its text.
type sieve struct {
	has, baseHas     letters // the bytes in candidate.lower, and in its base name
	pairs, basePairs pairs   // likewise for each two successive bytes

	size, baseSize uint16 // bytes in candidate.lower, and in its base name
	chars          uint16 // characters in candidate.path
	gone           bool   // the file does not exist; if it returns, it counts as listed
}

// letters is a set of bytes. Rare bytes share a bit.
type letters uint64

// notASCII is the bit of all bytes that are not ASCII.
const notASCII letters = 1 << 63

// letterOf is the bit of each byte. Bytes that are common in names have a bit
// of their own.
var letterOf = func() (bits [256]letters) {
	const common = "abcdefghijklmnopqrstuvwxyz0123456789./_-"
	for c := range bits {
		if c >= utf8.RuneSelf {
			bits[c] = notASCII
		} else {
			bits[c] = 1 << (len(common) + c%(63-len(common)))
		}
	}
	for i, c := range []byte(common) {
		bits[c] = 1 << i
	}
	return bits
}()

// pairs is a set of pairs of bytes. Many pairs share a bit. All pairs of digits
// share one, because they are in many paths and rarely searched for.
type pairs [2]uint64

// in reports whether all pairs may be in other.
func (p pairs) in(other pairs) bool { return p[0]&^other[0]|p[1]&^other[1] == 0 }

func (p pairs) plus(other pairs) pairs { return pairs{p[0] | other[0], p[1] | other[1]} }

// lettersOf returns the bytes and the pairs of bytes in text.
func lettersOf(text string) (has letters, in pairs) {
	const bits = 128
	for i := range len(text) {
		has |= letterOf[text[i]]
		if i == 0 {
			continue
		}
		a, b := text[i-1], text[i]
		bit := uint32(bits - 1)
		if a > '9' || b > '9' {
			bit = (uint32(a)<<8 | uint32(b)) * 2654435769 >> 8 % (bits - 1)
		}
		in[bit/64] |= 1 << (bit % 64)
	}
	return has, in
}

func newSieve(path, lower string) sieve {
	base := strings.LastIndexByte(lower, '/') + 1
	s := sieve{size: uint16(len(lower)), baseSize: uint16(len(lower) - base), chars: uint16(utf8.RuneCountInString(path))}
	s.baseHas, s.basePairs = lettersOf(lower[base:])
	s.has, s.pairs = lettersOf(lower)
	return s
}

// newIndex returns the index of the files in paths. It sorts paths if needed.
func newIndex(paths []string) index {
	if !slices.IsSorted(paths) {
		slices.Sort(paths)
	}
	paths = slices.Compact(slices.DeleteFunc(paths, tooLong))
	x := index{blocks: make([]*block, (len(paths)+blockFiles-1)/blockFiles), count: len(paths)}
	inParts(len(x.blocks), len(paths), func(from, to int) {
		giveWay()
		for b := from; b < to; b++ {
			x.blocks[b] = newBlock(paths[b*blockFiles : min((b+1)*blockFiles, len(paths))])
		}
	})
	return x
}

// tooLong reports whether a path is too long for an index. In lower case a path
// may have more bytes.
func tooLong(path string) bool { return len(path) > maxPathSize/utf8.UTFMax }

// newBlock returns a block of files. It packs their lower-case text into one piece of
// memory, which makes searches twice as fast because the next path is in the
// processor's cache.
func newBlock(paths []string) *block {
	b := &block{sieves: make([]sieve, len(paths)), files: make([]candidate, len(paths))}
	var text strings.Builder
	for i, path := range paths {
		lower := strings.ToLower(path)
		text.WriteString(lower)
		b.files[i], b.sieves[i] = candidate{path, lower}, newSieve(path, lower)
	}
	rest := text.String()
	for i := range b.files {
		f := &b.files[i]
		same := f.lower == f.path
		if f.lower, rest = rest[:len(f.lower)], rest[len(f.lower):]; same {
			f.path = f.lower
		}
	}
	return b
}

// place returns the position of a path in the index, or where it would be
// inserted.
func (x *index) place(path string) (b, i int, found bool) {
	b = max(0, sort.Search(len(x.blocks), func(b int) bool { return x.blocks[b].files[0].path > path })-1)
	if b == len(x.blocks) {
		return 0, 0, false
	}
	i, found = slices.BinarySearchFunc(x.blocks[b].files, path, func(c candidate, path string) int { return strings.Compare(c.path, path) })
	return b, i, found
}

// A span is a part of a block.
type span struct {
	*block
	from, to int
}

// below returns the files below a directory; "." is the root.
func (x *index) below(dir string) []span {
	spans := make([]span, 0, len(x.blocks))
	if dir == "." {
		for _, b := range x.blocks {
			spans = append(spans, span{b, 0, len(b.files)})
		}
		return spans
	}
	at, from, _ := x.place(dir + "/")
	last, end, _ := x.place(dir + "0") // '0' follows '/'
	for ; at <= last && at < len(x.blocks); at, from = at+1, 0 {
		to := len(x.blocks[at].files)
		if at == last {
			to = end
		}
		if from < to {
			spans = append(spans, span{x.blocks[at], from, to})
		}
	}
	return spans
}

// goneBelow returns the files below a directory that do not exist.
func (x *index) goneBelow(dir string) (gone []string) {
	for _, s := range x.below(dir) {
		for i := s.from; i < s.to; i++ {
			if s.sieves[i].gone {
				gone = append(gone, s.files[i].path)
			}
		}
	}
	return gone
}

// An edit makes a new index from another.
type edit struct {
	index
	own map[*block]bool // blocks not shared with the other index
}

func (x *index) edit() *edit {
	return &edit{index{slices.Clone(x.blocks), x.count}, make(map[*block]bool)}
}

// change returns a block that may be changed.
func (e *edit) change(at int) *block {
	b := e.blocks[at]
	if !e.own[b] {
		b = &block{slices.Clone(b.sieves), slices.Clone(b.files)}
		e.blocks[at], e.own[b] = b, true
	}
	return b
}

// hide marks a file as gone.
func (e *edit) hide(path string) {
	if b, i, found := e.place(path); found && !e.blocks[b].sieves[i].gone {
		e.change(b).sieves[i].gone = true
	}
}

// hideBelow marks all files below a directory as gone.
func (e *edit) hideBelow(dir string) {
	at, from, _ := e.place(dir + "/")
	for ; at < len(e.blocks); at, from = at+1, 0 {
		for i := from; i < len(e.blocks[at].files); i++ {
			if !strings.HasPrefix(e.blocks[at].files[i].path, dir+"/") {
				return
			}
			if !e.blocks[at].sieves[i].gone {
				e.change(at).sieves[i].gone = true
			}
		}
	}
}

// show adds a file, or marks it as existing.
func (e *edit) show(path string) {
	if tooLong(path) {
		return
	}
	at, i, found := e.place(path)
	switch {
	case found:
		if e.blocks[at].sieves[i].gone {
			e.change(at).sieves[i].gone = false
		}
		return
	case len(e.blocks) == 0:
		b := newBlock([]string{path})
		e.blocks, e.own[b] = append(e.blocks, b), true
	default:
		b, one := e.change(at), newBlock([]string{path})
		b.sieves, b.files = slices.Insert(b.sieves, i, one.sieves[0]), slices.Insert(b.files, i, one.files[0])
		if len(b.files) >= 2*blockFiles {
			rest := &block{slices.Clone(b.sieves[blockFiles:]), slices.Clone(b.files[blockFiles:])}
			b.sieves, b.files = slices.Clip(b.sieves[:blockFiles]), slices.Clip(b.files[:blockFiles])
			e.blocks, e.own[rest] = slices.Insert(e.blocks, at+1, rest), true
		}
	}
	e.count++
}
