package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/internal/agent/llm"
)

func TestPriceIsReadOrRefused(t *testing.T) {
	parse := func(args ...string) (llm.Price, error) {
		var s settings
		cmd := &cobra.Command{}
		s.register(cmd)
		err := cmd.ParseFlags(args)
		return s.runtime.Price, err
	}
	for _, tt := range []struct {
		args []string
		want llm.Price
	}{
		{nil, llm.Price{}},
		{[]string{"--price", "3,15,0.3,3.75"}, llm.Price{Input: 3, Output: 15, CacheRead: 0.3, CacheWrite: 3.75}},
	} {
		if got, err := parse(tt.args...); err != nil || got != tt.want {
			t.Errorf("%q: got %+v, %v, want %+v", tt.args, got, err, tt.want)
		}
	}
	if _, err := parse("--price", "3"); err == nil || !strings.Contains(err.Error(), `--price`) || !strings.Contains(err.Error(), "such as 3,15") {
		t.Errorf("got %v, want an error that names the flag and says what it wants", err)
	}
}
