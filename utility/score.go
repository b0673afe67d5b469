package utility

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// A query is the text of a search in lower case.
type query struct {
	text  string
	runes []rune
	words []string

	needs, wordNeeds letters // the bytes in text, and in words
	pairs, wordPairs pairs   // likewise for each two successive bytes
	sparseMost       int     // the best score of its characters scattered over a name
}

func newQuery(text string) query {
	text = strings.ToLower(text)
	q := query{text: text, runes: []rune(text), words: strings.Fields(text)}
	q.needs, q.pairs = lettersOf(text)
	q.sparseMost = 3_000 + 12*len(q.runes)
	for _, word := range q.words {
		has, pairs := lettersOf(word)
		q.wordNeeds, q.wordPairs = q.wordNeeds|has, q.wordPairs.plus(pairs)
	}
	return q
}

// A cut is the length by which paths relative to a directory are shorter.
type cut struct{ size, lower, chars int }

func newCut(dir string) cut {
	if dir == "." {
		return cut{}
	}
	dir += "/"
	return cut{len(dir), len(strings.ToLower(dir)), utf8.RuneCountInString(dir)}
}

// most returns an upper bound of the query's score for a file by its sieve
// alone, before the length of the path is subtracted.
func (q *query) most(s *sieve, cut cut) int {
	most := 0
	inPath := q.needs&^s.has == 0
	if inPath && q.pairs.in(s.pairs) {
		if most = 6_000; int(s.size)-cut.lower == len(q.text) {
			most = 9_500
		}
	} else if len(q.words) >= 2 && q.wordPairs.in(s.pairs) {
		most = 5_000
	}
	switch {
	case !inPath:
	case q.needs&^s.baseHas != 0:
		most = max(most, q.sparseMost-1_000)
	case !q.pairs.in(s.basePairs):
		most = max(most, q.sparseMost)
	case int(s.baseSize) == len(q.text):
		most = max(most, q.sparseMost, 10_000)
	default:
		most = max(most, q.sparseMost, 8_000)
	}
	return most
}

// score returns how well the query matches a file, at most 10,000. A result of
// 0 or less means no match, or none better than floor. All lengths and
// positions are in characters.
func (q *query) score(s *sieve, c *candidate, cut cut, floor int) int {
	if q.wordNeeds&^s.has != 0 {
		return 0 // every rule needs the letters of all words in the path
	}
	n := int(s.chars) - cut.chars
	if floor += n; q.most(s, cut) <= floor { // floor is now the bound before the length is subtracted
		return 0
	}
	path := c.lower[cut.lower:]
	base := c.lower[len(c.lower)-int(s.baseSize):]
	inName, inPath := q.needs&^s.baseHas == 0, q.needs&^s.has == 0
	if inName && q.pairs.in(s.basePairs) {
		switch {
		case q.text == base:
			return 10_000 - n
		case strings.HasPrefix(base, q.text):
			return 8_000 - n
		}
		if i := strings.Index(base, q.text); i > 0 {
			return 7_000 - 10*chars(base, i, s.baseHas) - n
		}
	}
	if inPath && q.pairs.in(s.pairs) {
		if q.text == path { // it contains a slash; otherwise it would equal the base name
			return 9_500 - n
		}
		if i := strings.Index(path, q.text); i >= 0 {
			return 6_000 - 10*chars(path, i, s.has) - n
		}
	}
	if len(q.words) >= 2 && q.wordPairs.in(s.pairs) && q.hasWords(path) {
		return 5_000 - n
	}
	if inName && floor <= q.sparseMost {
		if score := q.sparse(base, s.baseHas, floor-3_000); score > 0 {
			return 3_000 + score - n
		}
	}
	if inPath && floor <= q.sparseMost-1_000 {
		if score := q.sparse(path, s.has, floor-2_000); score > 0 {
			return 2_000 + score - n
		}
	}
	return 0
}

// chars returns the number of characters in the first n bytes of text.
func chars(text string, n int, has letters) int {
	if has&notASCII == 0 {
		return n
	}
	return utf8.RuneCountInString(text[:n])
}

// hasWords reports whether every word of the query is in the path.
func (q *query) hasWords(path string) bool {
	return !slices.ContainsFunc(q.words, func(word string) bool { return !strings.Contains(path, word) })
}

// sparse returns a score for the query's characters in text, in their order and
// possibly with gaps. It returns 0 if they are not all in text, or if the score
// is below floor.
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

// A hit is a matching file.
type hit struct {
	path  string
	chars int
	score int
}

// compare orders hits by score, then by shorter path, then by path.
func (a hit) compare(b hit) int {
	if a.score != b.score {
		return b.score - a.score
	}
	return cmp.Or(cmp.Compare(a.chars, b.chars), strings.Compare(a.path, b.path))
}

// A topHits is the best hits, best first.
type topHits []hit

// take adds h if it is among the best limit hits.
func (b *topHits) take(h hit, limit int) {
	if len(*b) == limit {
		if h.compare((*b)[limit-1]) >= 0 {
			return
		}
		*b = (*b)[:limit-1]
	}
	at, _ := slices.BinarySearchFunc(*b, h, hit.compare)
	*b = slices.Insert(*b, at, h)
}

// floor returns the score that a further hit must exceed when limit hits are
// kept.
func (b topHits) floor(matched, limit int) int {
	if matched <= limit {
		return 0
	}
	return b[len(b)-1].score - 1 // of two equal scores the shorter path is better
}

// ranking is read-locked while a search ranks files, in any workspace, because
// all share the processors.
var ranking sync.RWMutex

// behindRest is the pause between the parts of background work. It lets the
// scheduler run the goroutines that a search has woken to deliver its results.
// Without it, on two processors, they would wait up to 10 ms until the work is
// preempted.
const behindRest = 100 * time.Microsecond

// giveWay pauses the background work, and waits for searches that are ranking
// files. The work calls it between parts of 1 to 8 ms.
func giveWay() {
	time.Sleep(behindRest)
	ranking.Lock()
	defer ranking.Unlock()
}

// rank returns the best matches among the indexed files below dir, at most
// limit and best first, and whether there are more.
func (q *query) rank(x *index, dir string, limit int) (matches []contracts.FileMatch, more bool) {
	ranking.RLock()
	defer ranking.RUnlock()
	var mu sync.Mutex // guards kept and matched
	var kept topHits
	matched := 0
	spans, cut := x.below(dir), newCut(dir)
	inParts(len(spans), len(spans)*blockFiles, func(from, to int) {
		mu.Lock()
		floor := kept.floor(matched, limit)
		mu.Unlock()
		own, n := q.bestOf(spans[from:to], cut, limit, floor)
		mu.Lock()
		defer mu.Unlock()
		matched += n
		for _, h := range own {
			kept.take(h, limit)
		}
	})
	for _, h := range kept {
		matches = append(matches, contracts.FileMatch{Path: h.path, Score: int64(h.score)})
	}
	return matches, matched > limit
}

// bestOf returns at most limit of the best matches with a score above floor,
// and their number. Once limit is exceeded, it only looks for better ones.
func (q *query) bestOf(spans []span, cut cut, limit, floor int) (own topHits, matched int) {
	for _, at := range spans {
		sieves, files := at.sieves[at.from:at.to], at.files[at.from:at.to]
		for i := range sieves {
			s := &sieves[i]
			score := q.score(s, &files[i], cut, floor)
			if score <= 0 || s.gone {
				continue
			}
			matched++
			own.take(hit{files[i].path[cut.size:], int(s.chars) - cut.chars, score}, limit)
			floor = max(floor, own.floor(matched, limit))
		}
	}
	return own, matched
}

// inParts calls do for the parts of n items with that many files. If there are
// many files and at least two processors, it uses two goroutines. It returns
// when all calls have returned.
func inParts(n, files int, do func(from, to int)) {
	const many, part = 8192, 16
	if files < many || runtime.GOMAXPROCS(0) < 2 {
		do(0, n)
		return
	}
	var taken atomic.Int64
	run := func() {
		for to := 0; to < n; {
			to = int(taken.Add(part))
			if from := to - part; from < n {
				do(from, min(to, n))
			}
		}
	}
	var other sync.WaitGroup
	other.Go(run) // ends with the parts
	run()
	other.Wait()
}
