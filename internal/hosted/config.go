package hosted

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Config is the configuration of a hosted runner. [Config.Register] adds its
// flags and [Config.Resolve] completes it.
type Config struct {
	RunnerSessionID string // required; the control plane's name of the runner
	WorkspaceRoot   string // required; absolute and without symbolic links
	Listen          string // host:port; an empty host means every interface, port 0 any free port
	OwnerInstanceID string // the owner generation; empty if owners are not checked
	SnapshotRoot    string // absolute; the directory of manifests
	RestoreManifest string // absolute; empty starts a new session
	WorkspaceID     string // for manifests and refusals, like AgentRunID
	AgentRunID      string
	SessionID       string // the Maestro session to bind to; if empty, see Session
	AttachAudience  string // required audience of client tokens; empty is not checked

	// RequireOwnerHeader refuses attachments without an owner generation.
	RequireOwnerHeader bool
	// FlushTimeout bounds the stop and flush of the session in a drain. Zero
	// means 20 s. It must be shorter than the pod's termination grace period.
	FlushTimeout time.Duration

	listen, host, port string // as given by flags
}

const (
	defaultPort         = "8080"
	defaultFlushTimeout = 20 * time.Second
	ownDir              = ".maestro" // in the workspace, for the server's own files
	defaultSnapshots    = ownDir + "/runner-snapshots"
)

// Resolve completes the configuration from the environment and checks it. Its
// errors are for the operator and name the flag and the variable. It does not
// write to the disk.
func (c *Config) Resolve(getenv func(string) string) error {
	parts := c.read(getenv)
	if c.RunnerSessionID == "" {
		return missing("runner-session-id")
	}
	if c.WorkspaceRoot == "" {
		return missing("workspace-root")
	}
	if err := c.resolveWorkspace(); err != nil {
		return err
	}
	listen, err := listenAddress(parts)
	if err != nil {
		return err
	}
	c.Listen = listen
	if c.SnapshotRoot, err = c.inWorkspace("snapshot-root", cmp.Or(c.SnapshotRoot, defaultSnapshots)); err != nil {
		return err
	}
	if c.RestoreManifest != "" {
		if c.RestoreManifest, err = c.inWorkspace("restore-manifest", c.RestoreManifest); err != nil {
			return err
		}
	}
	switch {
	case legalID(c.SessionID) != c.SessionID:
		return fmt.Errorf(`%s %q: a session id is not "." or "..", and has up to 128 letters, digits, dots, colons, hyphens and underscores`, names("maestro-session-id"), c.SessionID)
	case c.RequireOwnerHeader && c.OwnerInstanceID == "":
		return errors.New("--require-owner-header needs an owner instance id: " + names("owner-instance-id"))
	case c.FlushTimeout < 0:
		return fmt.Errorf("--flush-timeout %v must not be negative", c.FlushTimeout)
	}
	c.FlushTimeout = cmp.Or(c.FlushTimeout, defaultFlushTimeout)
	return nil
}

func (c *Config) resolveWorkspace() error {
	root, err := filepath.Abs(c.WorkspaceRoot)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return fmt.Errorf("workspace root: %w", err)
	}
	if !isDir(root) {
		return fmt.Errorf("workspace root %s is not a directory", root)
	}
	c.WorkspaceRoot = root
	return nil
}

// inWorkspace returns an absolute path. A relative path is relative to the
// workspace root and must be below it.
func (c *Config) inWorkspace(flag, path string) (string, error) {
	switch {
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	case !filepath.IsLocal(path):
		return "", fmt.Errorf("--%s %q must be absolute or lie in the workspace", flag, path)
	}
	return filepath.Join(c.WorkspaceRoot, path), nil
}

// Session returns the id of the session that the runner is bound to: the
// configured one, else the restored one, else one made from the runner session
// id.
func (c *Config) Session(restored *contracts.Restored) string {
	id := c.SessionID
	if restored != nil {
		id = cmp.Or(id, restored.SessionID)
	}
	return cmp.Or(id, legalID(c.RunnerSessionID))
}

// legalID returns a runner's id in the form of a session id, which clients use
// in paths.
func legalID(id string) string {
	id = restrict(id, "._:-")
	if id == "." || id == ".." { // they would change a path
		return "_" + id
	}
	return id[:min(len(id), contracts.MaxIDBytes)]
}

// restrict replaces each character by an underscore unless it is an ASCII letter, a
// digit or one of others.
func restrict(text, others string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(others, r) {
			return r
		}
		return '_'
	}, text)
}

// Restore loads the configured manifest. Without one it returns nil twice. It
// refuses a manifest of another session than the configured one.
func (c *Config) Restore() (*contracts.Manifest, *contracts.Restored, error) {
	if c.RestoreManifest == "" {
		return nil, nil, nil
	}
	manifest, restored, err := LoadManifest(c.RestoreManifest, c.WorkspaceRoot)
	if err != nil {
		return nil, nil, err
	}
	if c.SessionID != "" && c.SessionID != restored.SessionID {
		return nil, nil, fmt.Errorf("restore manifest is of Maestro session %s, but the runner is bound to %s by %s",
			restored.SessionID, c.SessionID, names("maestro-session-id"))
	}
	return manifest, restored, nil
}
