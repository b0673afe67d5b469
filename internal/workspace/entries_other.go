//go:build !linux

package workspace

import "os"

// entriesBatch is how many entries one read returns at most.
const entriesBatch = 1024

// readEntries appends the next entries of a directory to all and reports
// whether there may be more.
func readEntries(dir *os.File, _ []byte, all []entry) ([]entry, bool) {
	batch, err := dir.ReadDir(entriesBatch)
	for _, e := range batch {
		all = append(all, entry{e.Name(), e.Type()})
	}
	return all, err == nil
}
