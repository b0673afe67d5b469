package mask

import (
	"encoding/json"
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
