package hecate

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// fixture returns the events of a published log.
func fixture(t testing.TB, name string) (list []json.RawMessage) {
	text, err := os.ReadFile("testdata/" + name)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestFixtures(t *testing.T) {
	for _, name := range []string{"agent-loop-success.json", "approval-policy.json"} {
		for _, text := range fixture(t, name) {
			if err := validate(text); err != nil {
				t.Errorf("got %v for %s", err, text)
			}
			e, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Parse(e.Append(nil)); err != nil || again.EventID != e.EventID || !again.OccurredAt.Equal(e.OccurredAt) {
				t.Errorf("got %+v, %v, want %+v", again, err, e)
			}
		}
	}
}

func TestParse(t *testing.T) {
	const good = `{"schema_version":"1","event_id":"evt_01HX0000000000000000000001","run_id":"run_01HX0000000000000000000001","sequence":18446744073709551615,"occurred_at":"2026-05-03T10:00:00.123456789Z","type":"a.b_c","data":{}}`
	t.Run("E38", func(t *testing.T) {
		text := strings.Replace(good, `"data":{}`, `"data":{"new":[1]},"newer":{"Type":2}`, 1)
		e, err := Parse([]byte(text))
		if err != nil || string(e.Raw) != text || e.Type != "a.b_c" || string(e.Data) != `{"new":[1]}` || e.Sequence != 1<<64-1 {
			t.Errorf("got %+v, %v", e, err)
		}
	})
	t.Run("E39", func(t *testing.T) {
		for i, text := range fixture(t, "agent-loop-success.json") {
			other := strings.NewReplacer("model.call.", "turn.", "model_call_index", "turn_index", "model_call_count", "turns").Replace(string(text))
			a, err := Parse(text)
			b, err2 := Parse([]byte(other))
			if err != nil || err2 != nil {
				t.Fatal(i, err, err2)
			}
			for _, name := range []string{"turn_index", "turns"} {
				n, ok := a.Count(name)
				m, ok2 := b.Count(name)
				if n != m || ok != ok2 || a.Kind() != b.Kind() {
					t.Errorf("got %d %t %s and %d %t %s", n, ok, a.Kind(), m, ok2, b.Kind())
				}
			}
		}
	})
	t.Run("E40", func(t *testing.T) {
		_, err := Parse([]byte(strings.Replace(good, `"1"`, `"2"`, 1)))
		if err == nil || !strings.Contains(err.Error(), `schema version "2" is not supported`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("E45", func(t *testing.T) {
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
		e := Event{EventID: "evt_01HX0000000000000000000001", RunID: "run_01HX0000000000000000000001", OccurredAt: at, Type: "a.b"}
		want := `{"schema_version":"1","event_id":"evt_01HX0000000000000000000001","run_id":"run_01HX0000000000000000000001","sequence":0,"occurred_at":"2026-01-02T02:04:05Z","type":"a.b","data":{}}`
		if got := string(e.Append(nil)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, err := json.Marshal(e); string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	})
	for _, change := range [][2]string{
		{`{"schema`, `["schema`}, {`"evt_`, `"run_`}, {`:"run_01`, `:"run_81`}, {`18446744073709551615`, `-1`}, {`18446744073709551615`, `"1"`},
		{`2026-05-03T`, `2026-05-03 `}, {`"a.b_c"`, `"a"`}, {`"a.b_c"`, `null`}, {`"data":{}`, `"data":null`}, {`"data":{}`, `"Data":{}`},
		{`"sequence"`, `"task_id":null,"sequence"`}, {`"sequence"`, `"session_id":"","sequence"`}, {`"schema_version":"1",`, ``},
	} {
		if e, err := Parse([]byte(strings.Replace(good, change[0], change[1], 1))); err == nil {
			t.Errorf("got %+v with %s, want an error", e, change[1])
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"agent-loop-success.json", "approval-policy.json"} {
		for _, text := range fixture(f, name) {
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(e.Append(nil))
		if err != nil || again.EventID != e.EventID || again.Sequence != e.Sequence || again.Type != e.Type || string(again.Data) != string(e.Data) {
			t.Errorf("got %+v, %v, want %+v", again, err, e)
		}
	})
}
