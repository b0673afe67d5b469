package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-028515a8/maestro/agent/llm"
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

func TestEnvironmentSaysWhatFlagsDoNot(t *testing.T) {
	parse := func(env map[string]string, args ...string) (settings, error) {
		var s settings
		cmd := &cobra.Command{}
		s.register(cmd)
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		return s, fromEnvironment(cmd, func(name string) string { return env[name] })
	}
	env := map[string]string{
		"MAESTRO_HEADLESS_CONNECTION_IDLE_MS": "9000", "MAESTRO_HEADLESS_SUBSCRIPTION_IDLE_MS": " 7000 ",
		"MAESTRO_HEADLESS_UTILITY_FILE_READ_MAX_BYTES": "12",
	}
	s, err := parse(env, "--lease-ttl", "3s")
	if err != nil || s.session.LeaseTTL != 3*time.Second || s.session.SubscriptionTTL != 7*time.Second || s.tools.MaxReadBytes != 12 {
		t.Errorf("got lease %v, subscription %v, read %d, %v; want the flag, and else the environment", s.session.LeaseTTL, s.session.SubscriptionTTL, s.tools.MaxReadBytes, err)
	}
	for _, bad := range []string{"0", "-1", "1.5", "1s", "x", "99999999999999999999"} {
		_, err := parse(map[string]string{"MAESTRO_HEADLESS_CONNECTION_IDLE_MS": bad})
		if !errors.As(err, new(usage)) {
			t.Errorf("%s: got %v, want wrong usage", bad, err)
		}
	}
}
