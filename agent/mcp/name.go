package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	namePrefix   = "mcp__"
	nameDivider  = "__"
	maxToolBytes = 64 // accepted by every model provider
	nameHash     = 8  // hex digits
)

// fullName returns the name of a server's tool for models: mcp__server__tool,
// of letters, digits, underscores and hyphens. If characters were replaced, or
// the name is too long or ambiguous, it ends in a hash of both names. The name
// depends on nothing else, so that a rule for a tool stays valid.
func fullName(server, tool string) string {
	name := namePrefix + server + nameDivider + tool
	clean := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			return c
		}
		return '_'
	}, name)
	ambiguous := strings.Contains(server, nameDivider) || strings.HasSuffix(server, "_")
	if clean == name && len(name) <= maxToolBytes && !ambiguous {
		return name
	}
	sum := sha256.Sum256([]byte(server + "\x00" + tool))
	suffix := "_" + hex.EncodeToString(sum[:])[:nameHash]
	return clean[:min(len(clean), maxToolBytes-len(suffix))] + suffix
}
