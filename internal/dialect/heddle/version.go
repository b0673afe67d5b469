package heddle

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// baseVersion is the version of clients that name none.
const baseVersion = "0.2.0"

// A version is a semantic version. It decides which fields and events a client gets.
type version struct{ major, minor, patch uint64 }

// parseVersion reads a version. Missing parts are 0, and so are a minor version and a
// patch that are no numbers. It returns false if the major version is no number.
func parseVersion(text string) (v version, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	v.major, ok = number(parts[0])
	if len(parts) > 1 {
		v.minor, _ = number(parts[1])
	}
	if len(parts) > 2 {
		v.patch, _ = number(parts[2])
	}
	return v, ok
}

func number(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, false
	}
	return n, true
}

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) }

// since reports whether a client of the version knows what 0.minor added.
func (v version) since(minor uint64) bool { return v.major > 0 || v.minor >= minor }

// lower returns the lower of two versions with the same major version.
func (v version) lower(other version) version {
	if cmp.Or(cmp.Compare(v.minor, other.minor), cmp.Compare(v.patch, other.patch)) < 0 {
		return v
	}
	return other
}
