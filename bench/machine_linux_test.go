package main

import (
	"os"
	"testing"
)

func TestVersionsOfAProgramWithoutPeers(t *testing.T) {
	if got := versions(os.Args[0]); got != "" {
		t.Errorf("peers of this test: got %q, want none", got)
	}
}
