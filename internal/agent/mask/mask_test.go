package mask

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSecretsInCommandsAreMasked(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{`ls -l`, `ls -l`},
		{`API_KEY=abc make`, `API_KEY=*** make`},
		{`env TOKEN='a.b' PASSWORD="c/d" run`, `env TOKEN=*** PASSWORD=*** run`},
		{`TOKEN=sk-a_B=9 run`, `TOKEN=*** run`},
		{`curl --api-key=abc -o x=y`, `curl --api-key=*** -o x=y`},
		{`MONKEY=abc COLOR=red run`, `MONKEY=abc COLOR=red run`},
		{`curl -H "Authorization: Bearer abc" host`, `curl -H "Authorization: ***" host`},
		{`curl -H 'authorization: abcdefgh01234567' host`, `curl -H 'authorization: ***' host`},
		{`MYSQL_PWD=abc run --max-tokens=5`, `MYSQL_PWD=*** run --max-tokens=5`},
	} {
		if got := Command(tt.line); got != tt.want {
			t.Errorf("Command(%s): got %s, want %s", tt.line, got, tt.want)
		}
	}
}

// Tokens are put together here, or scanners of sources would take them for real.
var (
	alnum  = strings.Repeat("aB3dE5gH", 8)
	jwt    = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + alnum[:43]
	base64 = strings.Repeat(alnum+"\n", 3)
)

func TestSecretsAreMaskedWhereverTheyStand(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{`curl -H "x-api-key: abc" host`, `curl -H "x-api-key: ***" host`},
		{`curl -H 'X-Auth-Token: abc' -H x-vault-token:abc host`, `curl -H 'X-Auth-Token: ***' -H x-vault-token:*** host`},
		{`curl --header "PRIVATE-TOKEN: abc" host`, `curl --header "PRIVATE-TOKEN: ***" host`},
		{`curl -H "Authorization: Basic dTpw" host`, `curl -H "Authorization: ***" host`},
		{`curl -H "Authorization: abc" host`, `curl -H "Authorization: ***" host`},
		{`curl -H "Cookie: session=abc" host`, `curl -H "Cookie: ***" host`},
		{`curl -u me:abc host`, `curl -u me:*** host`},
		{`curl -s 'http://x?a=1&b=2' --user "me:a!b#c"`, `curl -s 'http://x?a=1&b=2' --user "me:***"`},
		{`curl -ume:abc host; curl --user=a:b host`, `curl -ume:*** host; curl --user=a:*** host`},
		{`http -a me:abc GET host`, `http -a me:*** GET host`},
		{`git clone https://u:p%40w@host/x`, `git clone https://u:***@host/x`},
		{`git clone https://u:ghp_` + alnum[:36] + `@host/x`, `git clone https://u:***@host/x`},
		{`git clone https://ghp_` + alnum[:36] + `@host/x`, `git clone https://***@host/x`},
		{`run --password abc --user me`, `run --password *** --user me`},
		{`run --token=abc`, `run --token=***`},
		{`run -token 'a.b' --client-secret "c"`, `run -token *** --client-secret ***`},
		{`run --db-password abc --api-key abc --accessToken abc`, `run --db-password *** --api-key *** --accessToken ***`},
		{`mysql -uroot -pabc db`, `mysql -uroot -p*** db`},
		{`sshpass -p abc ssh host`, `sshpass -p *** ssh host`},
		{`docker login -u me -p abc host`, `docker login -u me -p *** host`},
		{`redis-cli -p 6379 -a abc`, `redis-cli -p 6379 -a ***`},
		{`curl -d '{"user":"u","password":"x y"}' host`, `curl -d '{"user":"u","password":"x y"}' host`}, // a shell may split it
		{`curl -d '{"user":"u","password":"x!y","apiKey": "z"}' host`, `curl -d '{"user":"u","password":"***","apiKey": "***"}' host`},
		{`curl -d "{\"client_secret\":\"x\"}" host`, `curl -d "{\"client_secret\":\"***\"}" host`},
		{`curl 'https://host/?access_token=abc&x=1'`, `curl 'https://host/?access_token=***&x=1'`},
		{"echo '-----BEGIN RSA PRIVATE KEY-----\n" + base64 + "-----END RSA PRIVATE KEY-----'", "echo '-----BEGIN RSA PRIVATE KEY-----\n***-----END RSA PRIVATE KEY-----'"},
		{`echo "-----BEGIN PRIVATE KEY-----\n` + alnum + `\n-----END PRIVATE KEY-----"`, `echo "-----BEGIN PRIVATE KEY-----\n***-----END PRIVATE KEY-----"`},
	} {
		if got := Command(tt.line); got != tt.want {
			t.Errorf("Command(%s): got %s, want %s", tt.line, got, tt.want)
		}
		if got := Text(tt.line); got != tt.want {
			t.Errorf("Text(%s): got %s, want %s", tt.line, got, tt.want)
		}
	}
	for _, token := range []string{
		"AKIA" + strings.Repeat("A2", 8), "ASIA" + strings.Repeat("B7", 8), "AIza" + alnum[:35], "ghp_" + alnum[:36], "gho_" + alnum[:36], "ghs_" + alnum[:36],
		"github_pat_" + alnum[:22] + "_" + alnum[:59], "glpat-" + alnum[:20], "xox" + "b-1234567890-" + alnum[:24], "xox" + "p-1234567890-" + alnum[:24], "xap" + "p-1-A1-" + alnum[:24],
		"sk-" + alnum[:48], "sk-proj-" + alnum[:40], "sk-ant-api03-" + alnum[:60], "sk_" + "live_" + alnum[:24], "rk_" + "test_" + alnum[:24], "npm_" + alnum[:36], "pypi-" + alnum[:60], "hf_" + alnum[:34],
		"SG." + alnum[:22] + "." + alnum[:43], "dop_v1_" + strings.Repeat("a1", 32), "hvs." + alnum[:40], "shpat_" + strings.Repeat("a1", 16), "glsa_" + alnum[:32] + "_a1b2c3d4",
		"ya29." + alnum[:40], "GOCSPX-" + alnum[:28], "dckr_pat_" + alnum[:27], "gsk_" + alnum[:52], "xai-" + alnum, "AGE-SECRET-KEY-1" + strings.Repeat("QZ9X", 15), jwt,
	} {
		for _, around := range []string{"run %s", "X='%s'", `{"text":"see %s"}`, "https://host/?q=%s&r"} {
			line := strings.Replace(around, "%s", token, 1)
			if got, want := Command(line), strings.Replace(around, "%s", Mark, 1); got != want && got != "X="+Mark {
				t.Errorf("Command(%s): got %s, want %s", line, got, want)
			}
			if got, want := string(Args(json.RawMessage(`{"a":"`+token+`"}`))), `{"a":"***"}`; got != want {
				t.Errorf("Args: got %s, want %s", got, want)
			}
		}
	}
}

func TestOrdinaryCommandsAreShownWhole(t *testing.T) {
	for _, line := range []string{
		`sort -u a:b`, `git push -u origin main:main`, `docker run -u 1000:1000 -u node:users -p 80:80 x`, `cp -u host:a b`, `mysql -p db`, `ssh -p 22 me@host`,
		`git show 9fceb02d0ae598e95dc970b74767f19372d61af8`, `run 123e4567-e89b-12d3-a456-426614174000`, `sha256sum -c e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855`,
		`docker login --password-stdin registry.example.com`, `gh auth login --with-token < file`, `run --token-file x --no-password y --max-tokens 5 --key-name k`,
		`curl -H "Content-Type: application/json" -H "Idempotency-Key: 123e4567-e89b-12d3-a456-426614174000" host`, `curl -u $USER:$PASS host`, `curl -u me host:80`,
		`git commit -m "fix: token: refresh it"`, `git commit -m "auth: compare in constant time"`, `git checkout sk-learn-pipelines-with-long-names`, `npm_config_cache=/tmp/x npm ci`,
		`curl http://localhost:8080/a@b`, `git clone git@github.com:a/b`, `git clone ssh://git@host:22/x`, `curl -d '{"key":"Enter","tokens":"5"}' host`, `grep -rn "password" --include '*.go' .`,
		`echo "--- PASS: TestSomethingWithALongName (0.00s)"`, `cat ~/.ssh/id_ed25519.pub`, `-----BEGIN CERTIFICATE-----`, `kubectl get secret my-secret -o yaml`, `echo "password: required"`,
	} {
		if got := Command(line); got != line {
			t.Errorf("Command(%s): got %s", line, got)
		}
	}
}

// Were the time quadratic in any of them, this would not end before the test's time is
// up.
func TestMaskingLongTextsTakesLinearTime(t *testing.T) {
	for _, piece := range []string{"A_TOKEN=b ", "A_TOKEN=$A_TOKEN ", "curl -u ", "curl '", "://a:", `"password":"`, "--token ", "eyJ", "eyJaaaaaaaaaa.", "token: ", "-----BEGIN PRIVATE KEY-----\n", "ghp_a", "mysql -a "} {
		_ = Command(strings.Repeat(piece, 50_000/len(piece)))
	}
}

func TestMaskingHidesNothingThatRuns(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{`TOKEN=a;rm -rf x`, `TOKEN=***;rm -rf x`},
		{`TOKEN=a&&rm x|cat>y`, `TOKEN=***&&rm x|cat>y`},
		{`TOKEN="$(rm -rf x)" ls`, `TOKEN="$(rm -rf x)" ls`},
		{"TOKEN=\"`rm x`\" ls", "TOKEN=\"`rm x`\" ls"},
		{`TOKEN=$(rm x) ls`, `TOKEN=$(rm x) ls`},
		{"TOKEN=a\nrm x", "TOKEN=***\nrm x"},
		{`echo authorization: a;rm x`, `echo authorization: a;rm x`},
		{`rm -f authorization: -r /home/me/project`, `rm -f authorization: -r /home/me/project`},
		{`eval TOKEN='1; rm -rf x'`, `eval TOKEN='1; rm -rf x'`},
		{`sh -c TOKEN="1 && rm x"`, `sh -c TOKEN="1 && rm x"`},
		{`TOKEN=a'b; rm x'c`, `TOKEN=***'b; rm x'c`},
		{`echo "authorization: $(rm x)"`, `echo "authorization: $(rm x)"`},
		{`curl -u me:"$(rm x)" host`, `curl -u me:"$(rm x)" host`},
		{`run --token $(rm x) --password a;rm x`, `run --token $(rm x) --password ***;rm x`},
		{`curl "https://u:$(rm x)@host"`, `curl "https://u:$(rm x)@host"`},
		{`bash -c '"$1" x' --token touch`, `bash -c '"$1" x' --token touch`},
		{`sh -ec '${0#*=} x' --api-key=touch`, `sh -ec '${0#*=} x' --api-key=touch`},
		{"-----BEGIN PRIVATE KEY-----\nrm x\n-----END PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nrm x\n-----END PRIVATE KEY-----"},
	} {
		if got := Command(tt.line); got != tt.want {
			t.Errorf("Command(%s): got %s, want %s", tt.line, got, tt.want)
		}
	}
}

func TestWhatALineUsesAgainIsShown(t *testing.T) {
	for _, line := range []string{
		`MY_TOKEN=touch; $MY_TOKEN pwned`,
		`MY_TOKEN=touch; "${MY_TOKEN}" pwned`,
		`set MY_TOKEN=touch & %my_token% pwned`,
		`$env:MY_TOKEN='touch'; iex $env:MY_TOKEN`,
		`X_TOKEN=dG91Y2ggeA==; echo $X_TOKEN | base64 -d | sh`,
		`echo X_TOKEN=touch | /bin/sh`,
		`echo X_TOKEN=touch | cut -c9- | sudo -u me bash -s`,
		`echo authorization: abcdefgh01234567 | "python3" -`,
		`printenv X_TOKEN=a |xargs`,
		`A_KEY=./evil.sh; $A_KEY`,
		`GITHUB_TOKEN=../../evil.sh ; . ./$GITHUB_TOKEN`,
		`A_TOKEN=touch; . ./run`,
		`A_TOKEN=touch . ./run`,
		`A_TOKEN=touch; source run`,
		`A_TOKEN=touch; eval "$(cat run)"`,
		`sh -c 'A_TOKEN=touch; eval x'`,
		`A_TOKEN=touch; B=A_TOKEN; ${!B} x`,
	} {
		if got := Command(line); got != line {
			t.Errorf("Command(%s): got %s, want all of it", line, got)
		}
		if got := Text(line); got == line {
			t.Errorf("Text(%s): got all of it, want the value hidden", line)
		}
	}
	for line, want := range map[string]string{
		`A_TOKEN=abc run $A_TOKENS $B`:                `A_TOKEN=*** run $A_TOKENS $B`,
		`A_TOKEN=abc docker build . -t x`:             `A_TOKEN=*** docker build . -t x`,
		`A_TOKEN=abc ./deploy.sh | tee out.sh`:        `A_TOKEN=*** ./deploy.sh | tee out.sh`,
		`A_TOKEN=abc B_KEY=def run $B_KEY`:            `A_TOKEN=*** B_KEY=def run $B_KEY`,
		`A_TOKEN=abc bash deploy.sh evaluate sources`: `A_TOKEN=*** bash deploy.sh evaluate sources`,
	} {
		if got := Command(line); got != want {
			t.Errorf("Command(%s): got %s, want %s", line, got, want)
		}
	}
}

func TestSecretsInArgsAreMasked(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{`{"b":1,"a":"TOKEN=x"}`, `{"b":1,"a":"TOKEN=x"}`},
		{`{"password":"x","n":12345678901234567890}`, `{"n":12345678901234567890,"password":"***"}`},
		{`{"deep":[{"apiKey":"x"},{"api_key":{"a":1}}],"token":null}`, `{"deep":[{"apiKey":"***"},{"api_key":"***"}],"token":null}`},
		{`{"command":"TOKEN=x ls"}`, `{"command":"TOKEN=*** ls"}`},
		{`{"command":["TOKEN=x"]}`, `{"command":["TOKEN=***"]}`},
		{`{"key":"Enter","max_tokens":5}`, `{"key":"Enter","max_tokens":5}`},
		{`{"privateKey":"x","secretAccessKey":"x","pwd":"/w"}`, `{"privateKey":"***","pwd":"/w","secretAccessKey":"***"}`},
		{`{"Authorization":"x"}`, `{"Authorization":"***"}`},
		{`"text"`, `"text"`},
		{`{`, `{`},
	} {
		if got := Args(json.RawMessage(tt.args)); string(got) != tt.want {
			t.Errorf("Args(%s): got %s, want %s", tt.args, got, tt.want)
		}
	}
}
