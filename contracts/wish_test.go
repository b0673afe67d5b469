package contracts

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseWish(t *testing.T) {
	long := strings.Repeat("é", 1<<10)
	for _, test := range []struct {
		text string
		want Wish
		err  string // ErrNoWish's for words
	}{
		{"", Wish{}, "no wish"},
		{"Approved", Wish{}, "no wish"},
		{`"session"`, Wish{}, "no wish"},
		{`[{"remember":"session"}]`, Wish{}, "no wish"},
		{`remember {"remember":"session"}`, Wish{}, "no wish"},
		{"\xff", Wish{}, "no wish"},

		{`{}`, Wish{}, ""},
		{`{"option_id":"a"}`, Wish{OptionID: "a"}, ""},
		{" \n{ \"remember\" : \"session\" }\t", Wish{Remember: RememberSession}, ""},
		{`{"reason":"no <b>","rule":"bash(a && b)","remember":"session","option_id":"\u00e9\\"}`, Wish{`é\`, "session", "bash(a && b)", "no <b>"}, ""},
		{`{"option_id":null,"remember":"session","rule":null,"reason":null}`, Wish{Remember: RememberSession}, ""},
		{`{"reason":""}`, Wish{}, ""},
		{`{"rule":"bash(ls)"}`, Wish{Rule: "bash(ls)"}, ""}, // whether that makes sense is the agent's to say
		{`{"\u0072ule":"a"}`, Wish{Rule: "a"}, ""},
		{`{"reason":"{\"option_id\":\"a\"}"}`, Wish{Reason: `{"option_id":"a"}`}, ""},
		{`{"reason":"` + long + `"}`, Wish{Reason: long}, ""},

		{`{`, Wish{}, "unexpected end of text at byte 1"},
		{` {"remember":"session"`, Wish{}, "unexpected end of text"},
		{`{"remember":"session`, Wish{}, "unexpected end of text"},
		{`{"remember":"session"}}`, Wish{}, "unexpected text after the value"},
		{`{"option_id":"a"} {}`, Wish{}, "unexpected text after the value"},
		{`{"option_id":"a"} please`, Wish{}, "unexpected text after the value"},
		{`{"remember":"session",}`, Wish{}, "expected a property name"},
		{`{"remember" "session"}`, Wish{}, "expected a colon"},
		{`{"option_id":"a" "rule":"b"}`, Wish{}, "expected a comma"},
		{`{remember:"session"}`, Wish{}, "expected a property name"},
		{`{'remember':'session'}`, Wish{}, "expected a property name"},
		{"{\"reason\":\"a\nb\"}", Wish{}, "control character"},
		{`{"reason":"\q"}`, Wish{}, "invalid escape"},
		{"{\"reason\":\"\xff\"}", Wish{}, "invalid UTF-8"},
		{"{} \xff", Wish{}, "invalid UTF-8"},
		{`{"rember":"session"}`, Wish{}, `"rember" is no wish that is known`},
		{`{"Remember":"session"}`, Wish{}, `"Remember" is no wish that is known`},
		{`{"":"a"}`, Wish{}, `"" is no wish that is known`},
		{`{"option_id":"a","\u001b":{}}`, Wish{}, `"\x1b" is no wish that is known`},
		{`{"` + long + `":1}`, Wish{}, `é…" is no wish that is known`},
		{`{"remember":"ever"}`, Wish{}, "for the session only"},
		{`{"remember":"Session"}`, Wish{}, "for the session only"},
		{`{"remember":""}`, Wish{}, "for the session only"},
		{`{"option_id":""}`, Wish{}, "option_id is empty"},
		{`{"remember":"session","rule":""}`, Wish{}, "rule is empty"},
		{`{"remember":true}`, Wish{}, "remember is no text"},
		{`{"option_id":1}`, Wish{}, "option_id is no text"},
		{`{"rule":["a"]}`, Wish{}, "rule is no text"},
		{`{"reason":{"rule":"a","rule":"b"}}`, Wish{}, "reason is no text"},
		{`{"option_id":nil}`, Wish{}, "expected a value"},
		{`{"option_id":"a","option_id":"a"}`, Wish{}, "option_id is said twice"},
		{`{"option_id":null,"option_id":"a"}`, Wish{}, "option_id is said twice"},
		{`{"rule":"a","\u0072ule":null}`, Wish{}, "rule is said twice"},
	} {
		got, err := ParseWish(test.text)
		switch {
		case got != test.want || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err):
			t.Errorf("%.99q: got %+v, %v; want %+v, %q", test.text, got, err, test.want, test.err)
		case errors.Is(err, ErrNoWish) != (test.err == "no wish"):
			t.Errorf("%.99q: got %v, want that told apart from words", test.text, err)
		case err != nil && len(err.Error()) > 200:
			t.Errorf("%.99q: got an error of %d bytes, want one fit to be shown", test.text, len(err.Error()))
		}
	}
}

func TestWishIsTheFirstThatAPersonSays(t *testing.T) {
	words, lasts, named, broken := "Go on.", `{"remember":"session"}`, `{"option_id":"a","reason":"Why not?"}`, `{"remember"`
	session, option := Wish{Remember: RememberSession}, Wish{OptionID: "a", Reason: "Why not?"}
	for _, test := range []struct {
		reason string
		texts  []string
		want   Wish
		told   string
		fails  bool
	}{
		{words, nil, Wish{}, words, false},
		{words, []string{words}, Wish{}, words, false},
		{lasts, nil, session, "", false},
		{named, nil, option, "Why not?", false},
		{named, []string{lasts, broken}, option, "Why not?", false},
		{words, []string{words, named, lasts}, option, words, false},
		{broken, []string{named}, Wish{}, broken, true},
		{words, []string{broken, named}, Wish{}, words, true},
		{words, []string{named, broken}, option, words, false},
		{"", []string{lasts}, session, "", false},
	} {
		out := Outcome{By: ResolvedByUser, Reason: test.reason, Content: []ContentBlock{{Type: "image", Text: broken}}}
		for _, text := range test.texts {
			out.Content = append(out.Content, ContentBlock{Type: "text", Text: text})
		}
		got, told, err := out.Wish()
		if got != test.want || told != test.told || (err != nil) != test.fails {
			t.Errorf("%q, %q: got %+v, %q, %v; want %+v, %q, an error: %t", test.reason, test.texts, got, told, err, test.want, test.told, test.fails)
		}
		for _, by := range []Resolver{"", ResolvedByPolicy, ResolvedByClient, ResolvedByRuntime} {
			out.By = by
			if got, told, err := out.Wish(); got != (Wish{}) || told != test.reason || err != nil {
				t.Errorf("%q by %q: got %+v, %q, %v; want none", test.reason, by, got, told, err)
			}
		}
	}
}

func TestAnswersStandForOptions(t *testing.T) {
	var all ApprovalOptions
	for _, o := range [][2]string{{"A", "allow_always"}, {"a", "allow_once"}, {"r", "reject_once"}, {"R", "reject_always"}, {"x", "odd"}} {
		all = append(all, ApprovalOption{ID: o[0], Kind: o[1]})
	}
	session, x := Wish{Remember: RememberSession}, Wish{OptionID: "x"}
	for _, test := range []struct {
		options  ApprovalOptions
		approved bool
		wish     Wish
		want     string // the option's id
	}{
		{all, true, Wish{}, "a"},
		{all, false, Wish{}, "r"},
		{all, true, session, "A"},
		{all, false, session, "R"},
		{all[:1], true, Wish{}, "A"},
		{all[1:3], true, session, "a"},
		{all[1:3], false, session, "r"},
		{all[3:], false, Wish{}, "R"},
		{all[:2], false, Wish{}, ""},
		{all[2:], true, Wish{}, ""},
		{nil, true, Wish{}, ""},
		{all, true, x, "x"},
		{all, false, x, "x"},
		{all, true, Wish{OptionID: "R"}, "R"},
		{all, true, Wish{OptionID: "A"}, "A"},
		{all, false, Wish{OptionID: "A"}, "r"},
		{all, false, Wish{OptionID: "A", Remember: RememberSession}, "R"},
		{all[:2], false, Wish{OptionID: "a"}, ""},
		{all[:4], true, x, ""},
		{all[:4], false, x, ""},
	} {
		got := ""
		if i := test.options.Meant(test.approved, test.wish); i >= 0 {
			got = test.options[i].ID
		}
		if got != test.want {
			t.Errorf("%v, %t, %+v: got %q, want %q", test.options, test.approved, test.wish, got, test.want)
		}
	}
}

// FuzzWish holds the parser to what encoding/json makes of a text that it accepts,
// and any wish to what is written of it.
func FuzzWish(f *testing.F) {
	f.Add(`{"option_id":"a","remember":"session"}`, "a", "", "", true)
	f.Add(` {"reason":"\ud800","rule":null} `, "", "bash(a && b)", "\u2028\x00\"", false)
	f.Add(`{"remember":"session"} {}`, "é\\", "<", "{}", true)
	f.Add("{\"reason\":\"\xff\"}", "", "", "", false)
	f.Add("\u00a0{}", "\ufffd", "", "", false)
	f.Fuzz(func(t *testing.T, text, option, rule, reason string, remember bool) {
		got, err := ParseWish(text)
		if err == nil {
			var want Wish
			if err := json.Unmarshal([]byte(strings.TrimSpace(text)), &want); err != nil || got != want || !utf8.ValidString(text) {
				t.Errorf("%q: got %+v, want %+v, %v", text, got, want, err)
			}
			checkWritten(t, got)
		} else if got != (Wish{}) || errors.Is(err, ErrNoWish) == strings.HasPrefix(strings.TrimSpace(text), "{") {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
		w := Wish{OptionID: option, Rule: rule, Reason: reason}
		if remember {
			w.Remember = RememberSession
		}
		if utf8.ValidString(option + " " + rule + " " + reason) {
			checkWritten(t, w)
		}
	})
}

func checkWritten(t *testing.T, w Wish) {
	if got, err := ParseWish(w.String()); err != nil || got != w {
		t.Errorf("%s: got %+v, %v; want %+v", w, got, err, w)
	}
}
