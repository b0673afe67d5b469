package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-028515a8/maestro/internal/journal"
)

// lines is a form whose frames are lines: its name, m or s, the cursor and the
// body.
type lines string

func (f lines) AppendMessage(dst []byte, cursor uint64, body []byte) []byte {
	return fmt.Appendf(dst, "%s m %d %s\n", string(f), cursor, body)
}

func (f lines) AppendSnapshot(dst []byte, cursor uint64, body []byte) []byte {
	return fmt.Appendf(dst, "%s s %d %s\n", string(f), cursor, body)
}

// text returns a message that merges with its neighbours of the same stream.
func text(stream, s string) journal.Entry { return textEnding(stream, s, "end") }

func textEnding(stream, s, end string) journal.Entry {
	body := `{"stream":"` + stream + `","text":"`
	start := uint32(len(body))
	return journal.Entry{
		TextStart: start, TextEnd: start + uint32(len(s)),
		Body: []byte(body + s + `","end":"` + end + `"}`),
	}
}

func plain(s string) journal.Entry { return journal.Entry{Body: []byte(s)} }

func newJournal(t testing.TB, opts journal.Options) (*journal.Journal, journal.Store) {
	t.Helper()
	store := journal.NewMemory(journal.MemoryOptions{})
	j, err := journal.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return j, store
}

func mustAppend(t testing.TB, j *journal.Journal, entries ...journal.Entry) uint64 {
	t.Helper()
	last, err := j.Append(entries...)
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// readAll reads from after to what is visible, and returns the frames.
func readAll(t testing.TB, v *journal.View, j *journal.Journal, after uint64, skip journal.Class) []string {
	t.Helper()
	var all []byte
	for buf := []byte(nil); after < j.Visible(); {
		frames, next, err := v.Read(&buf, after, j.Visible(), skip, 0)
		if err != nil {
			t.Fatalf("read after %d: %v", after, err)
		}
		if next <= after {
			t.Fatalf("read after %d: got stuck", after)
		}
		all, after = append(all, frames...), next
	}
	return strings.SplitAfter(string(all), "\n")[:bytes.Count(all, []byte("\n"))]
}

func equal(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got frames %q, want %q", got, want)
	}
}

func TestFollowersSeeMessagesAndSnapshotsOnly(t *testing.T) {
	j, _ := newJournal(t, journal.Options{})
	v := j.Follow(lines("x"))
	last := mustAppend(t, j,
		plain("one"), journal.Entry{Kind: journal.Note, Body: []byte("hidden")},
		journal.Entry{Kind: journal.Snapshot, Body: []byte("state")},
		journal.Entry{Kind: journal.Checkpoint, Body: []byte("hidden")})
	if last != 4 || j.Head() != 4 || j.Visible() != 4 || j.First() != 1 {
		t.Errorf("got last %d, head %d, visible %d, first %d, want 4, 4, 4, 1", last, j.Head(), j.Visible(), j.First())
	}
	equal(t, readAll(t, v, j, 0, 0), "x m 1 one\n", "x s 3 state\n")

	frames, next, err := v.Read(new([]byte), 3, 4, 0, 0)
	if len(frames) > 0 || next != 4 || err != nil {
		t.Errorf("past hidden entries: got %q, %d, %v, want no frames, 4", frames, next, err)
	}
}

func TestTransientEntriesAreShownFromTheWindowAlone(t *testing.T) {
	j, store := newJournal(t, journal.Options{})
	v := j.Follow(lines("x"))
	batch := []journal.Entry{plain("one"), plain("moment"), plain("two")}
	batch[1].Transient, batch[1].Class = true, 4
	mustAppend(t, j, batch...)
	equal(t, readAll(t, v, j, 0, 0), "x m 1 one\n", "x m 2 moment\n", "x m 3 two\n")
	equal(t, readAll(t, v, j, 0, 4), "x m 1 one\n", "x m 3 two\n")
	equal(t, readAll(t, j.Follow(lines("y")), j, 0, 0), "y m 1 one\n", "y m 2 moment\n", "y m 3 two\n")

	later, err := journal.New(store, journal.Options{}) // as after a restart
	if err != nil {
		t.Fatal(err)
	}
	equal(t, readAll(t, later.Follow(lines("x")), later, 0, 0), "x m 1 one\n", "x m 3 two\n")

	narrow, _ := newJournal(t, journal.Options{WindowEntries: 1})
	v = narrow.Follow(lines("x"))
	mustAppend(t, narrow, batch...)
	equal(t, readAll(t, v, narrow, 0, 0), "x m 1 one\n", "x m 3 two\n")
	if narrow.InWindow(1) || !narrow.InWindow(2) || !narrow.InWindow(3) {
		t.Errorf("window: got %t, %t, %t after 1, 2 and 3, want the last entry there", narrow.InWindow(1), narrow.InWindow(2), narrow.InWindow(3))
	}
}

func TestSkippedClassesAreLeftOut(t *testing.T) {
	j, _ := newJournal(t, journal.Options{})
	v := j.Follow(lines("x"))
	for i := range 8 {
		e := plain(strconv.Itoa(i))
		e.Class = journal.Class(i)
		mustAppend(t, j, e)
	}
	equal(t, readAll(t, v, j, 0, 0b011), "x m 1 0\n", "x m 5 4\n")
	equal(t, readAll(t, v, j, 0, 0b100), "x m 1 0\n", "x m 2 1\n", "x m 3 2\n", "x m 4 3\n")
}

// The fast path gives all followers the same bytes, without copying.
func TestEqualFormsShareTheirFrames(t *testing.T) {
	j, _ := newJournal(t, journal.Options{})
	one, two := j.Follow(lines("x")), j.Follow(lines("x"))
	for i := range 200 {
		mustAppend(t, j, plain(fmt.Sprintf("%d%080d", i, i)))
	}
	a, _, err := one.Read(new([]byte), 100, 150, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := two.Read(new([]byte), 100, 150, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if &a[0] != &b[0] || len(a) != len(b) {
		t.Error("two views of one form got different memory")
	}
	if cap(a) != len(a) {
		t.Error("appending to frames would write into the journal")
	}
	if n := testing.AllocsPerRun(100, func() { one.Read(new([]byte), 100, 150, 0, 0) }); n > 0 {
		t.Errorf("got %v allocations a read, want none", n)
	}
}

// A form that becomes active later shows what was there before.
func TestALateFormSeesEarlierEntries(t *testing.T) {
	j, _ := newJournal(t, journal.Options{})
	mustAppend(t, j, plain("one"), journal.Entry{Kind: journal.Note}, plain(""))
	v := j.Follow(lines("x"))
	mustAppend(t, j, plain("four"))
	equal(t, readAll(t, v, j, 0, 0), "x m 1 one\n", "x m 3 \n", "x m 4 four\n")
}

func TestFramesAreMadeForActiveFormsOnly(t *testing.T) {
	j, _ := newJournal(t, journal.Options{})
	made := 0
	first, second := j.Follow(counting{&made}), j.Follow(counting{&made})
	mustAppend(t, j, plain("one"))
	if made != 1 {
		t.Errorf("with two views: got %d frames made, want 1", made)
	}
	first.Close()
	first.Close() // counts once
	mustAppend(t, j, plain("two"))
	if made != 2 {
		t.Errorf("with one view: got %d frames made, want 2", made)
	}
	second.Close()
	mustAppend(t, j, plain("three"))
	if made != 2 {
		t.Errorf("without a view: got %d frames made, want 2", made)
	}
}

type counting struct{ made *int }

func (f counting) AppendMessage(dst []byte, _ uint64, _ []byte) []byte {
	*f.made++
	return append(dst, '.')
}
func (f counting) AppendSnapshot(dst []byte, _ uint64, _ []byte) []byte { return dst }

func TestDeferredEntriesWaitForReveal(t *testing.T) {
	woken := 0
	j, _ := newJournal(t, journal.Options{Deferred: true, Wake: func() { woken++ }})
	v := j.Follow(lines("x"))
	mustAppend(t, j, plain("one"), plain("two"), plain("three"))
	if frames, next, err := v.Read(new([]byte), 0, 3, 0, 0); len(frames) > 0 || next != 0 || err != nil {
		t.Errorf("before reveal: got %q, %d, %v, want nothing", frames, next, err)
	}
	j.Reveal(2)
	equal(t, readAll(t, v, j, 0, 0), "x m 1 one\n", "x m 2 two\n")
	j.Reveal(1)
	if j.Visible() != 2 {
		t.Errorf("revealing less: got visible %d, want 2", j.Visible())
	}
	j.Reveal(99)
	if j.Visible() != 3 || woken != 2 {
		t.Errorf("got visible %d after %d wakes, want 3 after 2", j.Visible(), woken)
	}
	if _, _, err := v.Read(new([]byte), 4, 9, 0, 0); !errors.Is(err, journal.ErrGap) {
		t.Errorf("from the future: got %v, want %v", err, journal.ErrGap)
	}
}

func TestWakeComesOnceAfterTheEntriesAreVisible(t *testing.T) {
	var j *journal.Journal
	var seen []uint64
	j, _ = newJournal(t, journal.Options{Wake: func() { seen = append(seen, j.Visible()) }})
	mustAppend(t, j, plain("one"), plain("two"))
	mustAppend(t, j)
	mustAppend(t, j, plain("three"))
	if !slices.Equal(seen, []uint64{2, 3}) {
		t.Errorf("got wakes at %v, want at 2 and 3", seen)
	}
}

// Far behind, texts of one stream become one frame; everything else stays.
func TestALaggingFollowerGetsMergedText(t *testing.T) {
	j, _ := newJournal(t, journal.Options{WindowEntries: 2})
	v := j.Follow(lines("x"))
	note := journal.Entry{Kind: journal.Note, Body: []byte("hidden")}
	other := text("a", "!")
	other.Class = 1
	mustAppend(t, j, text("a", "1"), text("a", "2"), note, text("a", "3"), text("b", "4"),
		plain("stop"), text("b", "5"), other, text("a", "6"), text("a", "7"), text("a", "8"))
	equal(t, readAll(t, v, j, 0, 0),
		frame("a", 4, "123"), frame("b", 5, "4"), "x m 6 stop\n", frame("b", 7, "5"),
		frame("a", 8, "!"), frame("a", 9, "6"), frame("a", 10, "7"), frame("a", 11, "8"))
}

func frame(stream string, cursor int, s string) string {
	return fmt.Sprintf("x m %d %s\n", cursor, text(stream, s).Body)
}

func TestMergedTextIsBounded(t *testing.T) {
	j, _ := newJournal(t, journal.Options{WindowEntries: 1})
	v := j.Follow(lines("x"))
	piece := strings.Repeat("t", 1000)
	for range 200 {
		mustAppend(t, j, text("a", piece))
	}
	huge := strings.Repeat("h", 100_000) // alone it is shown whole
	mustAppend(t, j, text("a", huge), text("a", piece), plain("end"))
	total := 0
	got := readAll(t, v, j, 0, 0)
	for _, f := range got {
		n := strings.Count(f, "t") - strings.Count(string(text("a", "").Body), "t")
		if n > 64<<10 {
			t.Errorf("got a frame with %d bytes of text, want at most 64 KiB", n)
		}
		total += max(n, 0)
	}
	if want := 201 * 1000; total != want || len(got) > 8 {
		t.Errorf("got %d bytes of text in %d frames, want %d in at most 8", total, len(got), want)
	}
}

func TestRetentionBehindTheWindowIsAGap(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{RetainBytes: 8 << 10})
	j, err := journal.New(store, journal.Options{WindowEntries: 4})
	if err != nil {
		t.Fatal(err)
	}
	v := j.Follow(lines("x"))
	for range 1000 {
		mustAppend(t, j, plain(strings.Repeat("x", 50)))
	}
	first := j.First()
	if first < 800 {
		t.Fatalf("got first %d, want most entries gone", first)
	}
	if _, _, err := v.Read(new([]byte), first-2, 1000, 0, 0); !errors.Is(err, journal.ErrGap) {
		t.Errorf("before the first: got %v, want %v", err, journal.ErrGap)
	}
	if got := readAll(t, v, j, first-1, 0); len(got) != int(1000-first+1) {
		t.Errorf("from the first: got %d frames, want %d", len(got), 1000-first+1)
	}
}

// The window alone can be read even if the store keeps less.
func TestTheWindowMayOutliveTheStore(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{RetainBytes: 1})
	j, err := journal.New(store, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := j.Follow(lines("x"))
	mustAppend(t, j, plain("one"), plain("two"))
	if j.First() != 1 {
		t.Errorf("got first %d, want 1", j.First())
	}
	equal(t, readAll(t, v, j, 0, 0), "x m 1 one\n", "x m 2 two\n")
}

func TestAJournalGoesOnFromItsStore(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{})
	for range 3 {
		j, err := journal.New(store, journal.Options{WindowEntries: 8})
		if err != nil {
			t.Fatal(err)
		}
		head := j.Head()
		if head > 8 && (!j.InWindow(head-8) || j.InWindow(head-9)) {
			t.Error("got another window than the last 8 entries")
		}
		for i := range 20 {
			if got, want := mustAppend(t, j, plain("entry")), head+uint64(i)+1; got != want {
				t.Fatalf("got cursor %d, want %d", got, want)
			}
		}
		if got := readAll(t, j.Follow(lines("x")), j, 0, 0); len(got) != int(j.Head()) {
			t.Errorf("got %d frames, want %d", len(got), j.Head())
		}
	}
}

func TestARestoredJournalGoesOnFromItsCursor(t *testing.T) {
	j, store := newJournal(t, journal.Options{After: 41})
	v := j.Follow(lines("x"))
	if j.Head() != 41 || j.Visible() != 41 || j.First() != 42 {
		t.Errorf("got head %d, visible %d, first %d, want 41, 41, 42", j.Head(), j.Visible(), j.First())
	}
	if _, _, err := v.Read(new([]byte), 40, 41, 0, 0); !errors.Is(err, journal.ErrGap) {
		t.Errorf("from before the restore: got %v, want %v", err, journal.ErrGap)
	}
	mustAppend(t, j, plain("next"))
	equal(t, readAll(t, v, j, 41, 0), "x m 42 next\n")
	if _, err := journal.New(store, journal.Options{After: 50}); err == nil {
		t.Error("continuing beyond the store's end: got no error")
	}
}

// failingStore refuses to append while err is set.
type failingStore struct {
	journal.Store
	err error
}

func (s *failingStore) Append(entries []journal.Entry) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.Append(entries)
}

func TestAFailedAppendShowsNothing(t *testing.T) {
	store := &failingStore{Store: journal.NewMemory(journal.MemoryOptions{})}
	j, err := journal.New(store, journal.Options{Wake: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	v := j.Follow(lines("x"))
	mustAppend(t, j, plain("one"))
	store.err = errors.New("no space")
	if last, err := j.Append(plain("two")); !errors.Is(err, store.err) || last != 1 {
		t.Errorf("got %d and %v, want 1 and %v", last, err, store.err)
	}
	equal(t, readAll(t, v, j, 0, 0), "x m 1 one\n")
	store.err = nil
	mustAppend(t, j, plain("two again"))
	equal(t, readAll(t, v, j, 0, 0), "x m 1 one\n", "x m 2 two again\n")
}

// An idle session must cost little, a busy one no more than its window.
func TestMemoryIsBounded(t *testing.T) {
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	const idle = 500
	before := heap()
	var journals []*journal.Journal
	for range idle {
		j, _ := newJournal(t, journal.Options{})
		j.Follow(lines("x"))
		j.Follow(lines("y"))
		mustAppend(t, j, plain("ready"), plain("session_info"))
		journals = append(journals, j)
	}
	if each := (heap() - before) / idle; each > 10<<10 {
		t.Errorf("got %d bytes for an idle journal, want at most 10 KiB", each)
	}
	runtime.KeepAlive(journals)

	before = heap()
	store := journal.NewMemory(journal.MemoryOptions{RetainBytes: 1 << 10})
	j, err := journal.New(store, journal.Options{WindowBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	v := j.Follow(lines("x"))
	for i := range 20_000 {
		mustAppend(t, j, plain(strings.Repeat("b", i%3000)))
	}
	mustAppend(t, j, plain(strings.Repeat("b", 4<<20)), plain("end"))
	if used := heap() - before; used > 2<<20 {
		t.Errorf("got %d bytes for a window of 1 MiB, want at most 2 MiB", used)
	}
	runtime.KeepAlive(v)
}

// Every follower sees every entry once, directly or merged, while the window
// is far too small for all of them.
func TestConcurrentFollowersSeeEverythingOnce(t *testing.T) {
	const count, followers = 20_000, 8
	j, _ := newJournal(t, journal.Options{WindowEntries: 16, WindowBytes: 4 << 10})
	var wg sync.WaitGroup
	for i := range followers {
		v := j.Follow(lines([]string{"x", "y"}[i%2]))
		wg.Go(func() { // ends when it has seen the last entry, or failed
			defer v.Close()
			follow(t, v, j, count, 1<<(4+i))
		})
	}
	for i := range count {
		if _, err := j.Append(text("a", fmt.Sprintf("%d,", i+1))); err != nil {
			t.Errorf("append: %v", err)
			break
		}
	}
	wg.Wait()
}

// A replay allocates its buffer once, and not for each batch.
func TestReplayKeepsItsBuffer(t *testing.T) {
	j, _ := newJournal(t, journal.Options{WindowEntries: 1})
	for range 100 {
		mustAppend(t, j, text("a", strings.Repeat("x", 10<<10)))
	}
	v := j.Follow(lines("x"))
	defer v.Close()
	var buf []byte
	read := func() {
		if _, _, err := v.Read(&buf, 0, j.Visible(), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	read()
	first := &buf[:1][0]
	read()
	if &buf[:1][0] != first {
		t.Errorf("the second read did not use the buffer of %d bytes", cap(buf))
	}
}

// follow reads the texts 1, 2, ... count and checks that none is left out.
func follow(t *testing.T, v *journal.View, j *journal.Journal, count uint64, limit int) {
	buf, seen := make([]byte, 0, 1<<10), uint64(0)
	for after := uint64(0); after < count; {
		frames, next, err := v.Read(&buf, after, j.Visible(), 0, limit)
		if err != nil {
			t.Errorf("read after %d: %v", after, err)
			return
		}
		for line := range strings.Lines(string(frames)) {
			_, rest, _ := strings.Cut(line, `"text":"`)
			list, _, _ := strings.Cut(rest, `,"`)
			for n := range strings.SplitSeq(list, ",") {
				if seen++; n != strconv.FormatUint(seen, 10) {
					t.Errorf("got text %s, want %d", n, seen)
					return
				}
			}
		}
		if seen != next {
			t.Errorf("got text up to %d and cursor %d", seen, next)
			return
		}
		if after = next; len(frames) == 0 {
			runtime.Gosched()
		}
	}
}

// A world is a journal, what was appended to it, and followers of it.
type world struct {
	j         *journal.Journal
	entries   []journal.Entry
	deferred  bool
	followers []*follower
}

type follower struct {
	view   *journal.View
	form   string
	cursor uint64
}

// Whatever is appended, however followers come, go and read: each gets exactly
// the visible entries that it does not leave out, in order, and merged text is
// what was merged.
func TestAnyInterleavingShowsEveryEntryOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{deferred: rapid.Bool().Draw(t, "deferred")}
		j, err := journal.New(journal.NewMemory(journal.MemoryOptions{}), journal.Options{
			Deferred:      w.deferred,
			WindowEntries: rapid.IntRange(1, 24).Draw(t, "window entries"),
			WindowBytes:   rapid.IntRange(1, 4000).Draw(t, "window bytes"),
		})
		if err != nil {
			t.Fatal(err)
		}
		w.j = j
		t.Repeat(map[string]func(*rapid.T){
			"append": w.append, "follow": w.follow, "read": w.read, "read more": w.read, "leave": w.leave,
			"reveal": func(t *rapid.T) { w.j.Reveal(rapid.Uint64Range(0, 200).Draw(t, "up to")) },
		})
	})
}

func (w *world) append(t *rapid.T) {
	var batch []journal.Entry
	for range rapid.IntRange(1, 8).Draw(t, "count") {
		s := rapid.StringMatching(`[a-z]{0,9}`).Draw(t, "text")
		e := plain(s)
		if rapid.Bool().Draw(t, "mergeable") {
			letters := rapid.SampledFrom([]string{"a", "a", "a", "b"})
			e = textEnding(letters.Draw(t, "stream"), s, letters.Draw(t, "end"))
		}
		class := rapid.SampledFrom([]journal.Class{0, 0, 0, 1, 2})
		e.Kind = rapid.SampledFrom([]journal.Kind{0, 0, 0, 0, 1, 2, 3, 4, 4}).Draw(t, "kind")
		e.Class = class.Draw(t, "class")
		if e.Kind == journal.Joint {
			part := rapid.SampledFrom([]string{"", "part", s})
			p := journal.Parts{
				Open: []byte(part.Draw(t, "open")), OpenClass: e.Class,
				Inner: []byte(part.Draw(t, "inner")), InnerClass: class.Draw(t, "inner class"),
				Hidden: []byte(s),
			}
			e = p.Joint()
			if got := e.Parts(); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", p) {
				t.Fatalf("parts: got %q, want %q", got, p)
			}
		}
		batch = append(batch, e)
	}
	last, err := w.j.Append(batch...)
	w.entries = append(w.entries, batch...)
	if err != nil || last != uint64(len(w.entries)) {
		t.Fatalf("append: got %d and %v, want %d", last, err, len(w.entries))
	}
	if !w.deferred && w.j.Visible() != last {
		t.Fatalf("got visible %d, want %d", w.j.Visible(), last)
	}
}

func (w *world) follow(t *rapid.T) {
	form := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "form")
	w.followers = append(w.followers, &follower{
		view: w.j.Follow(lines(form)), form: form,
		cursor: rapid.Uint64Range(0, w.j.Visible()).Draw(t, "cursor"),
	})
}

func (w *world) pick(t *rapid.T) int {
	if len(w.followers) == 0 {
		t.Skip("nobody follows")
	}
	return rapid.IntRange(0, len(w.followers)-1).Draw(t, "follower")
}

func (w *world) leave(t *rapid.T) {
	i := w.pick(t)
	w.followers[i].view.Close()
	w.followers = slices.Delete(w.followers, i, i+1)
}

func (w *world) read(t *rapid.T) {
	f := w.followers[w.pick(t)]
	until := rapid.Uint64Range(0, uint64(len(w.entries))+3).Draw(t, "until")
	skip := journal.Class(rapid.IntRange(0, 3).Draw(t, "skip"))
	limit := rapid.SampledFrom([]int{0, 1, 100, 1000}).Draw(t, "limit")

	frames, next, err := f.view.Read(new(make([]byte, 3, 50)), f.cursor, until, skip, limit)
	end := max(f.cursor, min(until, w.j.Visible()))
	switch {
	case err != nil:
		t.Fatalf("read after %d: %v", f.cursor, err)
	case next > end || next == f.cursor && f.cursor < end:
		t.Fatalf("read after %d to %d: got to %d", f.cursor, end, next)
	}
	var want []journal.Entry
	for _, e := range w.entries[f.cursor:next] {
		p := e.Parts()
		switch {
		case e.Kind != journal.Joint:
		case len(p.Inner) > 0 && p.InnerClass&skip == 0:
			e = journal.Entry{Cursor: e.Cursor, Body: p.Inner}
		case len(p.Open) > 0:
			e = journal.Entry{Cursor: e.Cursor, Class: p.OpenClass, Body: p.Open}
		}
		if e.Kind <= journal.Snapshot && e.Class&skip == 0 {
			want = append(want, e)
		}
	}
	for line := range strings.Lines(string(frames)) {
		want = consume(t, f.form, line, want)
	}
	if len(want) > 0 {
		t.Fatalf("read after %d to %d: got %q, without %d entries", f.cursor, next, frames, len(want))
	}
	f.cursor = next
}

// consume checks that line is the frame of the first entries of want, and
// returns the others.
func consume(t *rapid.T, form, line string, want []journal.Entry) []journal.Entry {
	if len(want) == 0 {
		t.Fatalf("got frame %q, want none", line)
	}
	e := want[0]
	for {
		f := lines(form).AppendMessage
		if e.Kind == journal.Snapshot {
			f = lines(form).AppendSnapshot
		}
		want = want[1:]
		if string(f(nil, e.Cursor, e.Body)) == line {
			return want
		}
		if len(want) == 0 || !mergeable(e, want[0]) {
			t.Fatalf("got frame %q, which is not of entry %d: %s", line, e.Cursor, e.Body)
		}
		next := want[0]
		e.Body = slices.Concat(e.Body[:e.TextEnd], next.Body[next.TextStart:next.TextEnd], e.Body[e.TextEnd:])
		e.TextEnd += next.TextEnd - next.TextStart
		e.Cursor = next.Cursor
	}
}

func mergeable(a, b journal.Entry) bool {
	return a.Kind == journal.Message && b.Kind == journal.Message && a.TextStart < a.TextEnd && b.TextStart < b.TextEnd && a.Class == b.Class &&
		bytes.Equal(a.Body[:a.TextStart], b.Body[:b.TextStart]) && bytes.Equal(a.Body[a.TextEnd:], b.Body[b.TextEnd:])
}
