package utility

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// A query is what a client looks for, in lower case.
type query struct {
	text  string
	runes []rune
	words []string
}

func newQuery(text string) query {
	text = strings.ToLower(text)
	return query{text: text, runes: []rune(text), words: strings.Fields(text)}
}

// score says how well the query fits a path, at best 10,000; 0 or less is not
// at all. All lengths and places are in characters.
func (q query) score(path string) int {
	n := utf8.RuneCountInString(path)
	lower := strings.ToLower(path)
	base := lower[strings.LastIndexByte(lower, '/')+1:]
	if q.text == base {
		return 10_000 - n
	}
	if q.text == lower {
		return 9_500 - n
	}
	if i := strings.Index(base, q.text); i == 0 {
		return 8_000 - n
	} else if i > 0 {
		return 7_000 - 10*utf8.RuneCountInString(base[:i]) - n
	}
	if i := strings.Index(lower, q.text); i >= 0 {
		return 6_000 - 10*utf8.RuneCountInString(lower[:i]) - n
	}
	if len(q.words) >= 2 && q.hasWords(lower) {
		return 5_000 - n
	}
	if s := q.sparse(base); s > 0 {
		return 3_000 + s - n
	}
	if s := q.sparse(lower); s > 0 {
		return 2_000 + s - n
	}
	return 0
}

// hasWords reports whether every word of the query is somewhere in the path.
func (q query) hasWords(path string) bool {
	return !slices.ContainsFunc(q.words, func(word string) bool { return !strings.Contains(path, word) })
}

// sparse says how near to each other the characters of the query are in text,
// taken from left to right, or 0 if they are not in it in their order.
func (q query) sparse(text string) int {
	score, next, gap := 0, 0, 0
	for _, c := range text {
		if next == len(q.runes) {
			break
		}
		if c != q.runes[next] {
			gap++
			continue
		}
		score += 12 - min(10, gap)
		next, gap = next+1, 0
	}
	if next < len(q.runes) {
		return 0
	}
	return score
}

// better orders matches: score, then the shorter path, then the path.
func better(a, b contracts.FileMatch) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score),
		cmp.Compare(utf8.RuneCountInString(a.Path), utf8.RuneCountInString(b.Path)),
		strings.Compare(a.Path, b.Path))
}

// A best keeps the best of many matches, the worst of them first.
type best []contracts.FileMatch

func (b best) Len() int           { return len(b) }
func (b best) Less(i, j int) bool { return better(b[i], b[j]) > 0 }
func (b best) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *best) Push(m any)        { *b = append(*b, m.(contracts.FileMatch)) }
func (b *best) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// rank returns the best matches among paths, at most limit and best first, and
// how many matched.
func (q query) rank(paths []string, limit int) (matches []contracts.FileMatch, matched int) {
	var kept best
	for _, path := range paths {
		score := q.score(path)
		if score <= 0 {
			continue
		}
		matched++
		m := contracts.FileMatch{Path: path, Score: int64(score)}
		switch {
		case len(kept) < limit:
			heap.Push(&kept, m)
		case better(m, kept[0]) < 0:
			kept[0] = m
			heap.Fix(&kept, 0)
		}
	}
	slices.SortFunc(kept, better)
	return kept, matched
}
