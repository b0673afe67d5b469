package check_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAlertsFireWhenTheyShould(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "prometheus")
	output(t, "promtool", "check", "rules", filepath.Join(dir, "rules.yaml"))
	output(t, "promtool", "test", "rules", filepath.Join(dir, "rules_test.yaml"))
	tests := read(t, "prometheus/rules_test.yaml")
	for _, name := range alerts(t) {
		if !strings.Contains(tests, "alertname: "+name+"\n        exp_alerts:") {
			t.Errorf("got no test in which %s fires", name)
		}
	}
}

// alerts returns the names of all alerts.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(read(t, "prometheus/rules.yaml"), -1) {
		names = append(names, found[1])
	}
	if len(names) == 0 {
		t.Fatal("got no alerts")
	}
	return names
}

// TestPrometheusReadsTheMetrics runs Prometheus with the example configuration and rules on a
// real server, and sends it all queries of the dashboard. Each must return data, so the names
// and labels in the dashboard are those of the server.
func TestPrometheusReadsTheMetrics(t *testing.T) {
	t.Parallel()
	s := serve(t)
	addr, _ := free(t)
	dir := t.TempDir()
	written(t, dir, "rules.yaml", read(t, "prometheus/rules.yaml"))
	config := written(t, dir, "prometheus.yml", adapted(t, "prometheus/prometheus.yml",
		"127.0.0.1:8787", s.addr, "/etc/prometheus/maestro-token", s.metricsToken, "interval: 15s", "interval: 200ms"))
	output(t, "promtool", "check", "config", config)
	start(t, "Server is ready to receive web requests", exec.Command("prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr))
	s.use(t)

	exported := s.metricNames(t)
	named := regexp.MustCompile(`\b(?:maestro|process|go)_\w+`)
	for _, name := range named.FindAllString(read(t, "prometheus/rules.yaml"), -1) {
		if !slices.Contains(exported, name) {
			t.Errorf("rules.yaml: got %s, which the server does not export", name)
		}
	}
	d := readDashboard(t)
	for _, v := range d.Templating.List {
		for _, name := range named.FindAllString(v.Definition, -1) {
			if !slices.Contains(exported, name) {
				t.Errorf("variable %s: got %s, which the server does not export", v.Name, name)
			}
		}
	}

	deadline := time.Now().Add(patience)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			for {
				var answer struct {
					Data struct{ Result []json.RawMessage }
				}
				body := get(t, "http://"+addr+"/api/v1/query?query="+url.QueryEscape(query(target.Expr)), &answer)
				if len(answer.Data.Result) > 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("panel %q, %s: got no data: %s", p.Title, target.Expr, body)
				}
			}
		}
	}

	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError, State string }
			}
		}
	}
	for evaluated := false; !evaluated; {
		get(t, "http://"+addr+"/api/v1/rules", &rules)
		evaluated = true
		for _, group := range rules.Data.Groups {
			for _, rule := range group.Rules {
				evaluated = evaluated && rule.Health != "unknown"
				if rule.LastError != "" || rule.State == "firing" {
					t.Errorf("%s: got the state %s and the error %q of a server that is well", rule.Name, rule.State, rule.LastError)
				}
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("got rules that were not evaluated: %+v", rules)
		}
	}
	if len(rules.Data.Groups) != 1 || len(rules.Data.Groups[0].Rules) != len(alerts(t)) {
		t.Errorf("got %+v, want all alerts", rules)
	}
}

// get fetches a JSON document.
func get(t *testing.T, url string, into any) (body string) {
	t.Helper()
	status, body := fetch(t, url, "")
	if err := json.Unmarshal([]byte(body), into); err != nil || status != http.StatusOK {
		t.Fatalf("%s: got %d %s, %v", url, status, body, err)
	}
	return body
}

// use runs a command and sends a wrong credential, so that the server has something to count.
func (s server) use(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	token := written(t, dir, "token", s.token+"\n")
	attach := exec.CommandContext(t.Context(), maestro, "attach", "--token-file", token, s.addr)
	attach.Env = append(os.Environ(), "HOME="+dir)
	attach.Stdin = strings.NewReader("echo hello\ny\n")
	if out, err := attach.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("hello")) {
		t.Fatalf("got %v and\n%s", err, out)
	}
	if status, body := fetch(t, "http://"+s.addr+"/api/headless/sessions", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("got %d %s, want 401", status, body)
	}
}

// metricNames returns the names of the series that the server exports.
func (s server) metricNames(t *testing.T) (names []string) {
	t.Helper()
	token, err := os.ReadFile(s.metricsToken)
	if err != nil {
		t.Fatal(err)
	}
	_, text := fetch(t, "http://"+s.addr+"/metrics", strings.TrimSpace(string(token)))
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, " "); ok && name != "#" {
			name, _, _ = strings.Cut(name, "{")
			names = append(names, name)
		}
	}
	return names
}
