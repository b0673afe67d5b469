package utility

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A storm changes a small tree at random, so that directories are often back at
// places that they have left, and gone before anybody has looked.
type storm struct {
	root string
	rand *rand.Rand
}

// place returns a path of a directory, which may not be there.
func (s *storm) place() string {
	path := s.root
	for _, name := range []string{"d", "in", "a"}[:1+s.rand.IntN(3)] {
		path = filepath.Join(path, fmt.Sprint(name, s.rand.IntN(4)))
	}
	return path
}

// blow is one change. It fails if what it is about is not there.
func (s *storm) blow() {
	at := s.place()
	file := filepath.Join(at, fmt.Sprint("f", s.rand.IntN(4)))
	switch s.rand.IntN(12) {
	case 0, 1:
		_ = os.MkdirAll(filepath.Join(at, "sub/deep"), 0o700)
		_ = os.WriteFile(filepath.Join(at, "sub/f"), []byte("x"), 0o600)
	case 2, 3:
		_ = os.WriteFile(file, []byte("x"), 0o600)
	case 4:
		_ = os.Rename(file, filepath.Join(s.place(), "f0"))
	case 5:
		_ = os.Remove(file)
	case 6:
		_ = os.Mkdir(file, 0o700) // another kind of thing
	case 7: // written to after it is gone
		if f, err := os.Create(file); err == nil {
			_ = os.Remove(file)
			_, _ = f.WriteString("x")
			_ = f.Close()
		}
	case 8:
		if s.rand.IntN(10) == 0 {
			_ = os.RemoveAll(at)
		}
	case 9: // there and back
		away := filepath.Join(s.root, fmt.Sprint("away", s.rand.IntN(2)))
		_ = os.Rename(at, away)
		_ = os.Rename(away, at)
	default:
		_ = os.Rename(at, s.place())
	}
}

// A directory is back when what became of it is due, and gone again before
// anybody has looked.
func TestWhatIsBackForAMomentIsToldGone(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"d/f": ""})
	b := newBrake(r)
	f := newFold(r, "w")
	from := r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(300))})
	dir, away := filepath.Join(r.root, "d"), filepath.Join(t.TempDir(), "d")
	must(t, os.Rename(dir, away))
	for known, began := true, time.Now(); known; {
		if time.Since(began) > patience {
			t.Fatal("got nothing reported, want that the directory is gone")
		}
		r.ofTree(func(l *lookout) { _, known = l.tree.top.names["d"] })
	}
	b.stop()
	must(t, os.Rename(away, dir))
	await(r, "a change", from, func(e *contracts.UtilityFileWatchEvent) bool { return e.RelativePath == "d/f" })
	must(t, os.Rename(dir, away))
	b.release()
	r.settle("w")
	f.agrees()
}

// What clients have been told of in a storm they are also told of when it is
// gone, by itself or with what it lay in.
func TestNothingIsLeftOfAStorm(t *testing.T) {
	t.Parallel()
	const seeds, each, blows = 5, 3, 400
	for seed := range uint64(seeds) {
		r := newRoom(t, Options{}, map[string]string{"d0/in0/a0/f0": "", "d1/f1": ""})
		f, before := newFold(r, "w"), r.onDisk()
		r.watchOf(&contracts.UtilityFileWatchStart{WatchID: "w", DebounceMS: ptr(int64(seed % 3 * 5))})
		var blowing sync.WaitGroup
		for i := range uint64(each) {
			s := &storm{root: r.root, rand: rand.New(rand.NewPCG(seed, i))}
			blowing.Go(func() { // ends with its changes
				for range blows {
					s.blow()
				}
			})
		}
		blowing.Wait()
		f.agrees()
		if got, want := r.withWhatTheyHold(before), r.onDisk(); !maps.Equal(got, want) {
			t.Errorf("seed %d: got %s", seed, difference(got, want))
		}
		r.sound()
	}
}

// withWhatTheyHold returns what a client knows that began with what was there and
// takes the end of a directory for that of all in it.
func (r *room) withWhatTheyHold(there map[string]bool) map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.events {
		e, ok := ev.(*contracts.UtilityFileWatchEvent)
		switch {
		case !ok:
		case e.ChangeType == contracts.FileDeleted:
			maps.DeleteFunc(there, func(path string, _ bool) bool {
				return path == e.RelativePath || strings.HasPrefix(path, e.RelativePath+"/")
			})
		default:
			there[e.RelativePath] = e.IsDirectory
		}
	}
	return there
}
