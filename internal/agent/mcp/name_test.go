package mcp

import (
	"regexp"
	"strings"
	"testing"
)

func TestFullNamesAreValidAndUnique(t *testing.T) {
	valid := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	long := strings.Repeat("long", 30)
	seen := map[string][2]string{}
	for _, server := range []string{"a", "a_", "a__b", "a.b", "a b", "ä", "files", long[:64]} {
		for _, tool := range []string{"b", "_b", "b__c", "c", "read", "read.file", "read/file", "read_file", "🙂", long, long + "er"} {
			name := fullName(server, tool)
			if !valid.MatchString(name) || !strings.HasPrefix(name, "mcp__") {
				t.Errorf("%s, %s: got %s, want a valid name", server, tool, name)
			}
			if other, taken := seen[name]; taken {
				t.Errorf("%s, %s: got %s, which is also that of %v", server, tool, name, other)
			}
			seen[name] = [2]string{server, tool}
			if again := fullName(server, tool); again != name {
				t.Errorf("got %s and %s, want one name", name, again)
			}
		}
	}
	for want, from := range map[string][2]string{
		"mcp__files__read_file":               {"files", "read_file"},
		"mcp__my_server__read_file_" + "HASH": {"my server", "read.file"},
	} {
		got := fullName(from[0], from[1])
		if prefix, hashed := strings.CutSuffix(want, "HASH"); hashed && (!strings.HasPrefix(got, prefix) || len(got) != len(prefix)+nameHash) || !hashed && got != want {
			t.Errorf("%v: got %s, want %s", from, got, want)
		}
	}
}
