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
