package wiring

import (
	"runtime/debug"
	"slices"
	"sync"
)

// Version returns the version of this module in the program, "devel" if the build has none.
var Version = sync.OnceValue(func() string {
	const module = "github.com/seed-028515a8/maestro"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, m := range slices.Concat(info.Deps, []*debug.Module{&info.Main}) {
		if m.Path == module && m.Version != "" && m.Version != "(devel)" {
			return m.Version
		}
	}
	return "devel"
})
