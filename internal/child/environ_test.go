package child

import (
	"slices"
	"testing"
)

func TestChildrenGetNoCredentials(t *testing.T) {
	env := []string{
		"PATH=/bin", "HOME=/h", "KEYBOARD=us", "MONKEY=1", "AUTHOR=me", "LC_ALL=C", "TOKENIZER=x", "EMPTY=", "WITH=a=b", "PWD=/w", "PATH_S=p",
		"OPENAI_API_KEY=k", "GITHUB_TOKEN=k", "MAESTRO_TOKEN=k", "MAESTRO_ATTACHTOKEN=k", "secret=k", "DB_PASSWORD=k",
		"PGPASSWORD=k", "MYSQL_PASSWD=k", "AWS_CREDENTIAL=k", "NPM_AUTH=k", "SSH_AUTH_SOCK=k", "SESSION_COOKIE=k", "=C:=C:\\",
		"API_KEYS=k", "TOKENS=k", "SECRETS_JSON=k", "MYSQL_PWD=k", "GH_PAT=k", "OTEL_EXPORTER_OTLP_HEADERS=k", "AWS_ACCESSKEY=k", "sshPrivateKey=k",
	}
	for _, tt := range []struct {
		name   string
		hosted bool
		pass   []string
		want   []string
	}{
		{"local", false, nil,
			[]string{"PATH=/bin", "HOME=/h", "KEYBOARD=us", "MONKEY=1", "AUTHOR=me", "LC_ALL=C", "TOKENIZER=x", "EMPTY=", "WITH=a=b", "PWD=/w", "PATH_S=p"}},
		{"local with a name passed", false, []string{"GITHUB_TOKEN", "ABSENT"},
			[]string{"PATH=/bin", "HOME=/h", "KEYBOARD=us", "MONKEY=1", "AUTHOR=me", "LC_ALL=C", "TOKENIZER=x", "EMPTY=", "WITH=a=b", "PWD=/w", "PATH_S=p", "GITHUB_TOKEN=k"}},
		{"hosted", true, nil, []string{"PATH=/bin", "HOME=/h", "LC_ALL=C", "PWD=/w"}},
		{"hosted with names passed", true, []string{"WITH", "GITHUB_TOKEN"},
			[]string{"PATH=/bin", "HOME=/h", "LC_ALL=C", "WITH=a=b", "PWD=/w", "GITHUB_TOKEN=k"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Environ(env, tt.hosted, tt.pass); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
