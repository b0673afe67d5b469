package mcp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// variables are the environment of these tests.
func variables(name string) (string, bool) {
	value, ok := map[string]string{"TOKEN": "s3cret", "EMPTY": "", "HOST": "notes.example"}[name]
	return value, ok
}

func TestServersAreRead(t *testing.T) {
	text := "\uFEFF" + `{"other": 1, "mcpServers": {
		"notes": {"type": "http", "url": "https://${HOST}/mcp?a=${NONE:-b}", "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 5},
		"files": {"command": "mcp-files", "args": ["--root", "${EMPTY:-.}", "$HOME", "${}"], "env": {"A": "${TOKEN}", "B": ""}, "cwd": "sub", "disabled": false, "url": null},
		"off": {"disabled": true, "type": "sse", "command": 7},
		"typed": {"type": "stdio", "command": "x", "url": "https://ignored"},
		"long": {"type": "streamable-http", "url": "http://127.0.0.1:1/mcp"},
		"plain": {"url": "http://h"}
	}}`
	got, err := parse([]byte(text), variables)
	want := []Server{
		{Name: "notes", URL: "https://notes.example/mcp?a=b", Headers: map[string]string{"Authorization": "Bearer s3cret"}},
		{Name: "files", Command: "mcp-files", Args: []string{"--root", ".", "$HOME", "${}"}, Env: map[string]string{"A": "s3cret", "B": ""}, Dir: "sub"},
		{Name: "typed", Command: "x"},
		{Name: "long", URL: "http://127.0.0.1:1/mcp"},
		{Name: "plain", URL: "http://h"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, %v\nwant %#v", got, err, want)
	}
	for _, shown := range []string{fmt.Sprint(got), fmt.Sprintf("%+v", got)} {
		if strings.Contains(shown, "s3cret") {
			t.Errorf("got a text with a secret, %s", shown)
		}
	}
}

func TestServersThatAreNotInOrderAreNamed(t *testing.T) {
	one := func(body string) string { return `{"mcpServers": {"srv": ` + body + `}}` }
	many := strings.Repeat(`"a%d": {"command": "x"},`, maxServers+1)
	numbers := make([]any, maxServers+1)
	for i := range numbers {
		numbers[i] = i
	}
	for text, want := range map[string]string{
		``:                                 "unexpected end of JSON input",
		"{\n\n]":                           "line 3",
		`[]`:                               "want an object",
		`{}`:                               `there is no "mcpServers"`,
		`{"mcpservers": {}}`:               `there is no "mcpServers"`,
		`{"mcpServers": []}`:               "mcpServers: want an object",
		`{"mcpServers": {"a":{},"a":{}}}`:  `"a" is there twice`,
		`{"mcpServers": {"": {"url":""}}}`: "a server needs a name",
		`{"mcpServers": {"a\n": {"command":"x"}}}`:                                         "printable",
		`{"mcpServers": {"` + strings.Repeat("n", 65) + `": {"command":"x"}}}`:             "at most 64 bytes",
		`{"mcpServers": {` + strings.TrimSuffix(fmt.Sprintf(many, numbers...), ",") + `}}`: "more than 64 servers",
		one(`7`):                                                         `server "srv": want an object`,
		one(`{}`):                                                        `server "srv": has no command and no url`,
		one(`{"command":"x","url":"https://h"}`):                         `has a command and a url`,
		one(`{"command":["x"]}`):                                         `server "srv": command: want a text`,
		one(`{"command":""}`):                                            `server "srv": command: is missing`,
		one(`{"type":"http"}`):                                           `server "srv": url: want http:// or https:// and a host`,
		one(`{"type":"stdio"}`):                                          `server "srv": command: is missing`,
		one(`{"type":"sse","url":"https://h/sse"}`):                      `server "srv": type: "sse" is the transport that streamable HTTP has replaced`,
		one(`{"type":"pigeon"}`):                                         `server "srv": type: "pigeon" is unknown`,
		one(`{"type":7}`):                                                `server "srv": type: want a text`,
		one(`{"command":"x","args":"y"}`):                                `server "srv": args: want a list of texts`,
		one(`{"command":"x","args":["${NO}"]}`):                          `server "srv": args[0]: the variable NO is not set`,
		one(`{"command":"x","env":{"P":1}}`):                             `server "srv": env.P: want a text`,
		one(`{"command":"x","env":{"P":null}}`):                          `server "srv": env.P: want a text`,
		one(`{"command":"x","env":{"P=":""}}`):                           `server "srv": env: "P="`,
		one(`{"command":"x\u0000"}`):                                     `server "srv": command: has a NUL`,
		one(`{"command":"x","disabled":"yes"}`):                          `server "srv": disabled: want true or false`,
		one(`{"url":"ftp://h"}`):                                         `server "srv": url: want http:// or https://`,
		one(`{"url":"https://u:p@h"}`):                                   `server "srv": url: has a name or password in it`,
		one(`{"url":"https://h","headers":{"A B":""}}`):                  `server "srv": headers: "A B" is no name`,
		one(`{"url":"https://h","headers":{"A":"x\r\nB: y"}}`):           `server "srv": headers.A: has a character`,
		one(`{"url":"https://h","headers":{"A":"${NO}"}}`):               `server "srv": headers.A: the variable NO is not set`,
		one(`{"command":"` + strings.Repeat("x", maxPartBytes+1) + `"}`): `server "srv": command: is longer`,
	} {
		got, err := parse([]byte(text), variables)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v, %v; want an error with %q", text, got, err, want)
		}
	}
}

func TestFilesAreRead(t *testing.T) {
	t.Setenv("MCP_TEST_LOAD", "from here")
	path := filepath.Join(t.TempDir(), "mcp.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"mcpServers": {"a": {"command": "${MCP_TEST_LOAD}"}}}`)
	if got, err := Load(path); err != nil || len(got) != 1 || got[0].Command != "from here" {
		t.Errorf("got %v, %v; want one server", got, err)
	}
	write(`{"mcpServers": {"a": {}}}`)
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	write(strings.Repeat(" ", maxFileBytes) + `{}`)
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("got %v, want that the file is too long", err)
	}
	if _, err := Load(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}
