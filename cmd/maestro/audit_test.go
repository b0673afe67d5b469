package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/hub"
)

func TestAuditShowsWhoAnsweredWhat(t *testing.T) {
	state := t.TempDir()
	r := startServer(t, "--state-dir", state)
	_ = r
}
