package utility

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// allIn returns every file of the index, with those that are gone.
func allIn(x *index) []string {
	var all []string
	for _, b := range x.blocks {
		for _, f := range b.files {
			all = append(all, f.path)
		}
	}
	return all
}

// An index that was changed again and again is what the changes make of a set, and
// those that it was made from stay as they were.
func TestEditsOfAnIndexAreThoseOfASet(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	name := func() string {
		parts := []string{"a", "b", "c", "ä", "A", "a.b", "a0", "-"}
		path := parts[rng.IntN(len(parts))]
		for range rng.IntN(4) {
			path += "/" + parts[rng.IntN(len(parts))] + fmt.Sprint(rng.IntN(20))
		}
		return path
	}
	var begin []string
	for range 5 * blockFiles {
		begin = append(begin, name())
	}
	for _, begin := range [][]string{nil, begin} {
		there := make(map[string]bool)
		for _, path := range begin {
			there[path] = true
		}
		x := newIndex(slices.Clone(begin))
		for round := range 60 {
			before, files := x, slices.Sorted(maps.Keys(there))
			e := x.edit()
			for range 1 + rng.IntN(200) {
				path := name()
				switch rng.IntN(8) {
				case 0:
					e.hideBelow(path)
					maps.DeleteFunc(there, func(file string, _ bool) bool { return strings.HasPrefix(file, path+"/") })
				case 1, 2:
					e.hide(path)
					delete(there, path)
				default:
					e.show(path)
					there[path] = true
				}
			}
			x = e.index
			if got, want := x.in("."), slices.Sorted(maps.Keys(there)); !slices.Equal(got, want) {
				t.Fatalf("round %d: got %d files, want %d", round, len(got), len(want))
			}
			if got := before.in("."); !slices.Equal(got, files) {
				t.Fatalf("round %d: got the index of before changed, want it as it was", round)
			}
			all := allIn(&x)
			if x.count != len(all) || !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
				t.Fatalf("round %d: got a count of %d for %d files, want them in order and each once", round, x.count, len(all))
			}
			for _, b := range x.blocks {
				if len(b.files) == 0 || len(b.files) >= 2*blockFiles || len(b.files) != len(b.sieves) {
					t.Fatalf("round %d: got a block of %d files and %d sieves", round, len(b.files), len(b.sieves))
				}
			}
			for range 20 {
				dir := name()
				var want []string
				for file := range there {
					if rel, ok := strings.CutPrefix(file, dir+"/"); ok {
						want = append(want, rel)
					}
				}
				slices.Sort(want)
				if got := x.in(dir); !slices.Equal(got, want) {
					t.Fatalf("round %d, %s: got %q below it, want %q", round, dir, got, want)
				}
			}
		}
	}
}

// Searching a directory finds what searching its files by themselves would.
func TestSearchOfADirectoryIsOfItsFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	paths := randomPaths(rng, 20_000)
	for _, dir := range []string{"É", "a/b", "☃ x", "\xff", "İ/ab"} {
		var all, own []string
		for _, p := range paths {
			all, own = append(all, dir+"/"+p, p, dir+"-/"+p), append(own, p)
		}
		x, alone := newIndex(all), newIndex(own)
		for _, text := range []string{"a", "ab", "É", "x/b", "b a", "☃", "1-~", paths[0], dir, dir + "/a"} {
			q := newQuery(text)
			for _, limit := range []int{1, 50, 30_000} {
				got, more := q.rank(&x, dir, limit)
				want, wantMore := q.rank(&alone, ".", limit)
				found := slices.ContainsFunc(want, func(m contracts.FileMatch) bool { return strings.HasPrefix(m.Path, dir+"/") })
				if !found && (more != wantMore || !slices.Equal(got, want)) {
					t.Errorf("%q below %q, best %d: got %d, more %v; want %d, more %v", text, dir, limit, len(got), more, len(want), wantMore)
				}
			}
		}
	}
}

// What is gone is not found, and what has come back is.
func TestFilesThatComeBackAreFound(t *testing.T) {
	x := newIndex([]string{"a", "d/a", "d/b"})
	found := func(x index) []string {
		q := newQuery("a")
		matches, _ := q.rank(&x, ".", 10)
		var list []string
		for _, m := range matches {
			list = append(list, m.Path)
		}
		return list
	}
	e := x.edit()
	e.hideBelow("d")
	if got := found(e.index); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %q, want what is left", got)
	}
	back := e.index.edit()
	back.show("d/a")
	if got := found(back.index); !slices.Equal(got, []string{"a", "d/a"}) {
		t.Errorf("got %q, want what has come back as well", got)
	}
	if got := found(x); !slices.Equal(got, []string{"a", "d/a"}) || x.count != back.count {
		t.Errorf("got %q of %d, want the first index as it was", got, x.count)
	}
}

func TestPathsThatAreTooLongAreLeftOut(t *testing.T) {
	long := strings.Repeat("x", maxPathSize)
	x := newIndex([]string{"a", long})
	e := x.edit()
	e.show(long)
	if got := allIn(&e.index); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %d paths, want the short one", len(got))
	}
}
