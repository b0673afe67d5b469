package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profile records where processor time goes until stop is called, and then what
// is on the heap, in files of dir that carry the number of this process. Bench
// ends a server before its viewers, so they are on the heap.
func profile(dir string) (stop func() error, err error) {
	create := func(kind string) (*os.File, error) {
		return os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", kind, os.Getpid())))
	}
	cpu, err := create("cpu")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(err, cpu.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		heap, err := create("heap")
		if err != nil {
			return errors.Join(err, cpu.Close())
		}
		runtime.GC() // the profile is of what the last collection left
		return errors.Join(pprof.WriteHeapProfile(heap), heap.Close(), cpu.Close())
	}, nil
}
