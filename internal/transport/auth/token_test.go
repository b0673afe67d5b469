package auth

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestTokenIsMadeOnceAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "deep", "token")
	first, err := LoadOrCreateToken(path)
	if err != nil || len(first) != 43 { // 256 bits in base64
		t.Fatalf("got %d characters, %v, want 43", len(first), err)
	}
	if again, err := LoadOrCreateToken(path); err != nil || again != first {
		t.Errorf("again: got another token, %v", err)
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %v", name, info.Mode().Perm(), err, want)
		}
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("got %v, %v, want the token alone", files, err)
	}
	if _, err := New(Options{Token: first}); err != nil {
		t.Error(err)
	}
}

func TestProcessesThatStartTogetherAgreeOnTheToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	var wg sync.WaitGroup
	tokens := make([]string, 8)
	for i := range tokens {
		wg.Go(func() {
			token, err := LoadOrCreateToken(path)
			if err != nil {
				t.Error(err)
			}
			tokens[i] = token
		})
	}
	wg.Wait()
	for _, got := range tokens {
		if got != tokens[0] {
			t.Fatal("got different tokens, want one")
		}
	}
}

func TestUnfitTokenFileIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, content, want string
		mode                os.FileMode
	}{
		{"readable by the group", strings.Repeat("x", 43), "can be read by others", 0o640},
		{"readable by all", strings.Repeat("x", 43), "can be read by others", 0o604},
		{"empty", "", "16 to 1024 bytes", 0o600},
		{"short", "secret", "16 to 1024 bytes", 0o600},
		{"long", strings.Repeat("x", 1<<20), "16 to 1024 bytes", 0o600},
		{"two lines", strings.Repeat("x", 43) + "\n" + strings.Repeat("y", 43), "without spaces", 0o600},
		{"binary", strings.Repeat("\x00", 43), "without spaces", 0o600},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			token, err := LoadOrCreateToken(path)
			if token != "" || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %d characters, %v, want an error with %q", len(token), err, tt.want)
			}
		})
	}
	t.Run("folder", func(t *testing.T) {
		if _, err := LoadOrCreateToken(t.TempDir()); err == nil {
			t.Fatal("got a token, want an error")
		}
	})
}

func TestOwnTokenMayEndInANewline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	want := strings.Repeat("x", 20)
	if err := os.WriteFile(path, []byte(want+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadOrCreateToken(path); err != nil || got != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}
