package utility

import (
	"cmp"
	"container/heap"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// A candidate is a file that a search may find, with what scoring it takes, so
// that a query need not look at every path's characters again.
type candidate struct {
	path  string
	lower string // the path in lower case; the same bytes if it is
	base  int32  // where its name begins in lower
	chars int32  // its length

	// has and baseHas are the letters of lower and of its name.
	has, baseHas letters
}

func newCandidate(path, lower string) candidate {
	if path == lower {
		path = lower // whose bytes lie where the search goes
	}
	base := strings.LastIndexByte(lower, '/') + 1
	c := candidate{path: path, lower: lower, base: int32(base), chars: int32(utf8.RuneCountInString(path)), baseHas: lettersOf(lower[base:])}
	c.has = c.baseHas | lettersOf(lower[:base])
	return c
}

// newCandidates returns the candidates for paths. What is searched of them lies
// in one piece, in their order.
func newCandidates(paths []string) []candidate {
	all := make([]candidate, len(paths))
	inParts(len(paths), func(from, to int) {
		var text strings.Builder
		ends := make([]int, to-from)
		for i, path := range paths[from:to] {
			text.WriteString(strings.ToLower(path))
			ends[i] = text.Len()
		}
		lower, begin := text.String(), 0
		for i, end := range ends {
			all[from+i] = newCandidate(paths[from+i], lower[begin:end])
			begin = end
		}
	})
	return all
}

// letters is a set of bytes: one bit for each that is common in names, shared
// bits for the others.
type letters uint64

// notASCII is the bit of all bytes that are not ASCII.
const notASCII letters = 1 << 63

// letterOf has the bit of each byte.
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

func lettersOf(text string) (has letters) {
	for i := range len(text) {
		has |= letterOf[text[i]]
	}
	return has
}

// A query is what a client looks for, in lower case.
type query struct {
	text  string
	runes []rune
	words []string

	needs      letters // of text
	wordNeeds  letters // of words
	sparseMost int     // what its characters here and there in a name may give
}

func newQuery(text string) query {
	text = strings.ToLower(text)
	q := query{text: text, runes: []rune(text), words: strings.Fields(text), needs: lettersOf(text)}
	q.sparseMost = 3_000 + 12*len(q.runes)
	for _, word := range q.words {
		q.wordNeeds |= lettersOf(word)
	}
	return q
}

// score says how well the query fits a file, at best 10,000; 0 or less is not
// at all, or worse than floor. All lengths and places are in characters.
func (q *query) score(c *candidate, floor int) int {
	if q.wordNeeds&^c.has != 0 {
		return 0 // every rule needs the letters of all words in the path
	}
	n, base := int(c.chars), c.lower[c.base:]
	floor += n // what a rule must give before the length is taken off
	inName, inPath := q.needs&^c.baseHas == 0, q.needs&^c.has == 0
	if inName {
		switch {
		case q.text == base:
			return 10_000 - n
		case strings.HasPrefix(base, q.text):
			return 8_000 - n
		case floor > max(7_000, q.sparseMost):
			return 0
		}
		if i := strings.Index(base, q.text); i > 0 {
			return 7_000 - 10*chars(base, i, c.baseHas) - n
		}
	}
	if inPath {
		switch {
		case q.text == c.lower: // it has a slash, or it were the name, too
			return 9_500 - n
		case floor > max(6_000, q.sparseMost):
			return 0
		}
		if i := strings.Index(c.lower, q.text); i >= 0 {
			return 6_000 - 10*chars(c.lower, i, c.has) - n
		}
	}
	if len(q.words) >= 2 && q.hasWords(c.lower) {
		return 5_000 - n
	}
	if inName && floor <= q.sparseMost {
		if s := q.sparse(base, c.baseHas, floor-3_000); s > 0 {
			return 3_000 + s - n
		}
	}
	if inPath && floor <= q.sparseMost-1_000 {
		if s := q.sparse(c.lower, c.has, floor-2_000); s > 0 {
			return 2_000 + s - n
		}
	}
	return 0
}

// chars returns how many characters the first n bytes of text are.
func chars(text string, n int, has letters) int {
	if has&notASCII == 0 {
		return n
	}
	return utf8.RuneCountInString(text[:n])
}

// hasWords reports whether every word of the query is somewhere in the path.
func (q *query) hasWords(path string) bool {
	return !slices.ContainsFunc(q.words, func(word string) bool { return !strings.Contains(path, word) })
}

// sparse says how near to each other the characters of the query are in text,
// taken from left to right, or 0 if they are not in it in their order or give
// less than floor.
func (q *query) sparse(text string, has letters, floor int) int {
	score := 12 * len(q.runes)
	if (has|q.needs)&notASCII == 0 {
		for i := range len(q.text) {
			gap := strings.IndexByte(text, q.text[i])
			if gap < 0 {
				return 0
			}
			if score -= min(10, gap); score < floor {
				return 0
			}
			text = text[gap+1:]
		}
		return score
	}
	next, gap := 0, 0
	for _, c := range text {
		if next == len(q.runes) {
			break
		}
		if c != q.runes[next] {
			gap++
			continue
		}
		score -= min(10, gap)
		next, gap = next+1, 0
	}
	if next < len(q.runes) {
		return 0
	}
	return score
}

// A hit is a candidate that matches.
type hit struct {
	*candidate
	score int
}

// compare orders hits: score, then the shorter path, then the path.
func (a hit) compare(b hit) int {
	if a.score != b.score {
		return b.score - a.score
	}
	return cmp.Or(cmp.Compare(a.chars, b.chars), strings.Compare(a.path, b.path))
}

// A best keeps the best of many hits, the worst of them first.
type best []hit

func (b best) Len() int           { return len(b) }
func (b best) Less(i, j int) bool { return b[i].compare(b[j]) > 0 }
func (b best) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *best) Push(h any)        { *b = append(*b, h.(hit)) }
func (b *best) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// take keeps h if it is one of the best limit.
func (b *best) take(h hit, limit int) {
	switch {
	case len(*b) < limit:
		heap.Push(b, h)
	case h.compare((*b)[0]) < 0:
		(*b)[0] = h
		heap.Fix(b, 0)
	}
}

// rank returns the best matches among files, at most limit and best first, and
// whether there are more.
func (q *query) rank(files []candidate, limit int) (matches []contracts.FileMatch, more bool) {
	var mu sync.Mutex // guards kept and matched
	var kept best
	matched := 0
	inParts(len(files), func(from, to int) {
		own, n := q.bestOf(files[from:to], limit)
		mu.Lock()
		defer mu.Unlock()
		matched += n
		for _, h := range own {
			kept.take(h, limit)
		}
	})
	slices.SortFunc(kept, hit.compare)
	for _, h := range kept {
		matches = append(matches, contracts.FileMatch{Path: h.path, Score: int64(h.score)})
	}
	return matches, matched > limit
}

// bestOf returns the best matches, at most limit, and how many there are; once
// there are more it only looks for better ones.
func (q *query) bestOf(files []candidate, limit int) (own best, matched int) {
	floor := 0
	for i := range files {
		score := q.score(&files[i], floor)
		if score <= 0 {
			continue
		}
		matched++
		own.take(hit{&files[i], score}, limit)
		if matched > limit {
			floor = own[0].score
		}
	}
	return own, matched
}

// inParts calls do for parts of n things, on two processors if there are many
// and the machine has them. All calls have returned when it does.
func inParts(n int, do func(from, to int)) {
	const many = 8192
	if n < many || runtime.GOMAXPROCS(0) < 2 {
		do(0, n)
		return
	}
	var other sync.WaitGroup
	other.Go(func() { do(0, n/2) }) // ends with its part
	do(n/2, n)
	other.Wait()
}
