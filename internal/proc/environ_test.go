package proc

import (
	"slices"
	"strings"
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

func TestVariablesOfCredentialsAreKnown(t *testing.T) {
	for _, entry := range []string{
		"SSHPASS=k", "CREDS=k", "GCP_CREDS=k", "CREDS_JSON=k", "JWT=k", "SERVICE_JWT=k", "BEARER=k", "API_BEARER=k", "OAUTH=k", "GITHUB_OAUTH=k",
		"GOOGLE_OAUTH2=k", "JWT_SECRET=k", "OAUTH_TOKEN=k", "VOLC_SK=k", "TLS_PEM=k", "CLIENT_PEMS=k", "DSN=k", "SENTRY_DSN=k",
		"AZURE_STORAGE_CONNECTION_STRING=k", "CONNECTION_STRING=k", "SQLAZURECONNECTIONSTRING=k", "ConnectionStrings__Default=k",
		"SLACK_WEBHOOK_URL=k", "DISCORD_WEBHOOK=k",
		"DATABASE_URL=postgres://app:k@db:5432/app", "REDIS_URL=redis://:k@cache:6379/0", "MONGODB_URI=mongodb+srv://app:k@one,two/db",
		"HTTPS_PROXY=http://me:k@proxy:3128", "https_proxy=http://me:k@proxy:3128/", "ALL_PROXY=socks5://me:k@[::1]:1080",
		"SQLALCHEMY_DATABASE_URI=mysql+pymysql://app:p/k@db/app", "PIP_EXTRA_INDEX_URL=https://one/simple https://me:k@two/simple",
		"CELERY_BROKER=amqp://app:k%40k@mq//", "SETTINGS={\"db\":\"postgres://app:k@db/app\"}", "QUEUE=amqp://app:12345@mq", "DB=x://app:k#1@db",
		"http_proxy=me:k@proxy:3128", "HTTPS_PROXY=me:k@proxy", "All_Proxy=me:p/k@[::1]:1080", "FTP_PROXY= me:k@proxy ",
		"REPO=https://ghp_0123456789abcdefghij@github.com/x", "REMOTE=https://github_pat_0123456789@github.com/x", "ORIGIN=https://glpat-0123456789@gitlab.com/x",
		"URL=https://gho_0123@github.com", "DEPLOY_HOOK=https://example.org/hooks/x", "NOTIFY_HOOKS=https://a",
		"AZURE_STORAGE_ACCOUNTKEY=k", "ACCOUNTKEY=k", "COSMOS_ACCOUNT_KEY=k", "BLOB_SAS=k", "SAS_URL=https://x", "AZURE_SAS_TOKEN=k",
	} {
		if got := Environ([]string{entry}, false, nil); len(got) > 0 {
			t.Errorf("%s: got it passed, want it withheld", entry)
		}
		name, _, _ := strings.Cut(entry, "=")
		if got := Environ([]string{entry}, false, []string{name}); len(got) == 0 {
			t.Errorf("%s: got it withheld, want it passed by its name", entry)
		}
	}
}

// What a person's programs need is not withheld from them.
func TestHarmlessVariablesArePassed(t *testing.T) {
	for _, entry := range []string{
		"PATH=/usr/bin:/bin", "MANPATH=/usr/share/man", "PWD=/w", "OLDPWD=/w", "SHELL=/bin/bash", "TERM=xterm-256color", "LANG=sk_SK.UTF-8",
		"LS_COLORS=rs=0:di=01;34", "PS1=\\u@\\h:\\w", "EDITOR=vi", "PAGER=less", "DISPLAY=:0", "XAUTHORITY=/run/x", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1/bus",
		"SSH_CONNECTION=10.0.0.1 50000 10.0.0.2 22", "SSH_TTY=/dev/pts/0", "SSH_ASKPASS=/usr/bin/askpass", "GIT_AUTHOR_EMAIL=me@example.org",
		"GOPATH=/go", "GOPROXY=https://proxy.golang.org,direct", "GOFLAGS=-mod=mod", "NODE_OPTIONS=--max-old-space-size=4096", "JAVA_HOME=/j", "PYTHONPATH=/p",
		"VIRTUAL_ENV=/v", "CARGO_HOME=/c", "RUSTFLAGS=-Dwarnings", "KUBECONFIG=/k", "DOCKER_HOST=tcp://127.0.0.1:2375", "CI=true", "GITHUB_SHA=abc",
		"OAUTHLIB_INSECURE_TRANSPORT=1", "OAUTH_CLIENT_ID=app", "OAUTH2_REDIRECT_URI=http://localhost:3000/back", "OAUTH_SCOPES=read",
		"JWT_AUDIENCE=api", "JWT_ISSUER=https://id.example.org", "JWT_ALGORITHM=RS256", "BEARER_REALM=x", "TASK=x", "DISK=x", "NODE_DISK=/dev/sda",
		"SSL_CERT_FILE=/etc/ssl/cert.pem", "SYSTEM=x", "PEM_DIR=/p", "SK_LOCALE=x", "WEBHOOK_PORT=80", "COMPASS=n", "BYPASS=1", "SASS_PATH=/s", "SASL_MECHANISM=PLAIN",
		"HTTP_PROXY=proxy:3128", "http_proxy=me@proxy:3128", "no_proxy=a,b@c", "ALL_PROXY=[::1]:1080", "EMAIL=me:k@proxy", "GIT_HOOK=/hooks/pre-commit", "HOOK_URL=x",
		"URL=https://oauth2@gitlab.com/x", "LONG=https://a-user-with-a-long-name-0123456789@example.org", "PKG=https://registry.npmjs.org/ghp_x", "STRING=x", "CONNECTION=x",
		"DATABASE_URL=postgres://localhost:5432/app", "DB_URL=postgres://app@db/app", "REDIS_URL=redis://localhost:6379/0", "MONGODB_URI=mongodb://one:27017,two:27017/db?w=a@b",
		"HTTPS_PROXY=http://proxy:3128", "http_proxy=http://me@proxy:3128", "NO_PROXY=localhost,127.0.0.1", "NO_PW_URL=http://me:@host", "BOTH=http://a,http://b",
		"VITE=http://localhost:3000/@vite/client", "SIX=http://[::1]/@x", "SIX_PORT=http://[::1]:80/@x", "REPO=ssh://git@example.org/a.git", "SCP=git@example.org:a/b.git", "REGISTRY=https://registry.npmjs.org/@scope/",
		"TWO=http://one:80 me@example.org", "PIPE=a://b", "ODD=://", "IMAGE=host:5000/a@sha256:abc", "JDBC=jdbc:h2:mem:test",
	} {
		if got := Environ([]string{entry}, false, nil); len(got) == 0 {
			t.Errorf("%s: got it withheld, want it passed", entry)
		}
	}
}
