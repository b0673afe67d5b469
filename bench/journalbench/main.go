// Command journalbench measures the journal's segment file: how long one append
// takes, at a fixed rate and as fast as possible. It prints one JSON object.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/journal"
)

// bodySize is the size of an event in bytes.
const bodySize = 200

// A result is what journalbench prints.
type result struct {
	PacedP50   int64 `json:"paced_p50"`  // nanoseconds of one append at the rate
	PacedP99   int64 `json:"paced_p99"`  // the same, 99th percentile
	FullP50    int64 `json:"full_p50"`   // nanoseconds of one append, one after the other
	FullP99    int64 `json:"full_p99"`   // the same, 99th percentile
	FullPerSec int64 `json:"full_per_s"` // events appended per second, one after the other
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "journalbench:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	dir := flag.String("dir", "", "folder for the journal; it must not exist")
	rate := flag.Int("rate", 500, "events per second of the paced part")
	paced := flag.Int("paced", 1500, "events of the paced part")
	full := flag.Int("full", 500_000, "events of the part without pauses")
	flag.Parse()
	if *dir == "" || *rate < 1 || *paced < 1 || *full < 1 {
		flag.Usage()
		return errors.New("-dir is required and counts are positive")
	}
	store, err := journal.Open(*dir, journal.FileOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	w := &writer{store: store, body: slices.Repeat([]byte("x"), bodySize)}

	slow, _, err := w.append(*paced, time.Second/time.Duration(*rate))
	if err != nil {
		return err
	}
	fast, took, err := w.append(*full, 0)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result{
		PacedP50: at(slow, 50), PacedP99: at(slow, 99),
		FullP50: at(fast, 50), FullP99: at(fast, 99),
		FullPerSec: int64(float64(*full) / took.Seconds()),
	})
}

type writer struct {
	store *journal.File
	body  []byte
	last  uint64
}

// append appends n events, one every interval, and returns how long each took,
// sorted, and all together.
func (w *writer) append(n int, every time.Duration) (calls []int64, took time.Duration, err error) {
	calls = make([]int64, 0, n)
	began := time.Now()
	for i := range n {
		if every > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * every)))
		}
		w.last++
		entry := journal.Entry{Cursor: w.last, Time: time.Now().UnixMilli(), Body: w.body}
		before := time.Now()
		if err := w.store.Append([]journal.Entry{entry}); err != nil {
			return nil, 0, err
		}
		calls = append(calls, time.Since(before).Nanoseconds())
	}
	took = time.Since(began)
	slices.Sort(calls)
	return calls, took, nil
}

// at is a percentile of sorted values.
func at(sorted []int64, percent int) int64 { return sorted[(len(sorted)-1)*percent/100] }
