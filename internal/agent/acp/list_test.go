package acp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestOfLongListsTheBeginningIsKept(t *testing.T) {
	many := "[" + strings.Repeat(`{"path":"a"},`, maxListed+7) + `{"path":"a"}]`
	for raw, want := range map[string][2]int{many: {maxListed, 8}, `[]`: {0, 0}, `[{"path":"a"},7,null,{"path":8}]`: {4, 0}} {
		var l list[location]
		hosttest.Must(t, json.Unmarshal([]byte(raw), &l))
		if l.kept == nil || len(l.kept) != want[0] || l.more != want[1] || want[0] > 0 && l.kept[0].Path != "a" {
			t.Errorf("%.40s: got %d elements and %d more, want %v", raw, len(l.kept), l.more, want)
		}
	}
	for _, raw := range []string{`null`, `"nowhere"`, `7`, `{"path":"a"}`} {
		l := list[location]{kept: []location{{}}, more: 1}
		if err := json.Unmarshal([]byte(raw), &l); err != nil || l.kept != nil || l.more != 0 {
			t.Errorf("%s: got %+v, %v; want no list", raw, l, err)
		}
	}
}

func TestListsOfMillionsAreShownInPart(t *testing.T) {
	s := open(t, setup{})
	const n = 200_000
	s.run(t, step{Raw: `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"x","status":"completed","content":[` +
		strings.Repeat("0,", n) + `{"type":"content","content":{"type":"text","text":"last"}}]}}}`}, done)
	if got, want := s.host.Output(), "[199745 more pieces are not shown]"; got != want {
		t.Errorf("got output %q, want %q", got, want)
	}
}
