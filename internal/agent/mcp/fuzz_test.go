package mcp

import "testing"

func FuzzServers(f *testing.F) {
	f.Add([]byte(`{"mcpServers": {"a": {"command": "x", "args": ["${A:-b}"], "env": {"A": "1"}}, "b": {"type": "http", "url": "https://h/${B}", "headers": {"A": "b"}}}}`))
	f.Add([]byte(`{"mcpServers": {"a": {"disabled": true}, "a": null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		servers, err := parse(text, func(name string) (string, bool) { return "value of " + name, true })
		if err != nil {
			return
		}
		for _, s := range servers {
			if err := s.check(); err != nil || (s.Command == "") == (s.URL == "") {
				t.Errorf("got %v, %v; want servers that are in order", s, err)
			}
		}
	})
}

func FuzzEndpoint(f *testing.F) {
	for _, address := range []string{"https://h", "https://h/mcp?a=b#c", "https://h:1/p//.well-known/evalops/agent-mcp.json/", "http://[::1]/%2e%2e/mcp", "https://h/a%2fb/mcp?%zz"} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		once, err := endpoint(address, false)
		if err != nil {
			return
		}
		if twice, err := endpoint(once, false); err != nil || twice != once {
			t.Errorf("%q: got %q, then %q, %v; want the endpoint of an endpoint to be itself", address, once, twice, err)
		}
	})
}
