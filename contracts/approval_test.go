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
		want AnswerNote
		err  string // ErrNoWish's for words
	}{
		{"", AnswerNote{}, "no note"},
		{"Approved", AnswerNote{}, "no note"},
		{`"session"`, AnswerNote{}, "no note"},
		{`[{"remember":"session"}]`, AnswerNote{}, "no note"},
		{`remember {"remember":"session"}`, AnswerNote{}, "no note"},
		{"\xff", AnswerNote{}, "no note"},

		{`{}`, AnswerNote{}, ""},
		{`{"option_id":"a"}`, AnswerNote{OptionID: "a"}, ""},
		{" \n{ \"remember\" : \"session\" }\t", AnswerNote{Remember: RememberSession}, ""},
		{`{"reason":"no <b>","rule":"bash(a && b)","remember":"session","option_id":"\u00e9\\"}`, AnswerNote{`é\`, "session", "bash(a && b)", "no <b>"}, ""},
		{`{"option_id":null,"remember":"session","rule":null,"reason":null}`, AnswerNote{Remember: RememberSession}, ""},
		{`{"reason":""}`, AnswerNote{}, ""},
		{`{"rule":"bash(ls)"}`, AnswerNote{Rule: "bash(ls)"}, ""}, // whether that makes sense is the agent's to say
		{`{"\u0072ule":"a"}`, AnswerNote{Rule: "a"}, ""},
		{`{"reason":"{\"option_id\":\"a\"}"}`, AnswerNote{Reason: `{"option_id":"a"}`}, ""},
		{`{"reason":"` + long + `"}`, AnswerNote{Reason: long}, ""},

		{`{`, AnswerNote{}, "unexpected end of text at byte 1"},
		{` {"remember":"session"`, AnswerNote{}, "unexpected end of text"},
		{`{"remember":"session`, AnswerNote{}, "unexpected end of text"},
		{`{"remember":"session"}}`, AnswerNote{}, "unexpected text after the value"},
		{`{"option_id":"a"} {}`, AnswerNote{}, "unexpected text after the value"},
		{`{"option_id":"a"} please`, AnswerNote{}, "unexpected text after the value"},
		{`{"remember":"session",}`, AnswerNote{}, "expected a property name"},
		{`{"remember" "session"}`, AnswerNote{}, "expected a colon"},
		{`{"option_id":"a" "rule":"b"}`, AnswerNote{}, "expected a comma"},
		{`{remember:"session"}`, AnswerNote{}, "expected a property name"},
		{`{'remember':'session'}`, AnswerNote{}, "expected a property name"},
		{"{\"reason\":\"a\nb\"}", AnswerNote{}, "control character"},
		{`{"reason":"\q"}`, AnswerNote{}, "invalid escape"},
		{"{\"reason\":\"\xff\"}", AnswerNote{}, "invalid UTF-8"},
		{"{} \xff", AnswerNote{}, "invalid UTF-8"},
		{`{"rember":"session"}`, AnswerNote{}, `"/rember" is no known member of a note`},
		{`{"Remember":"session"}`, AnswerNote{}, `"/Remember" is no known member of a note`},
		{`{"":"a"}`, AnswerNote{}, `"/" is no known member of a note`},
		{`{"option_id":"a","\u001b":{}}`, AnswerNote{}, `"/\x1b" is no known member of a note`},
		{`{"` + long + `":1}`, AnswerNote{}, `é…" is no known member of a note`},
		{`{"remember":"ever"}`, AnswerNote{}, "/remember Expected union value"},
		{`{"remember":"Session"}`, AnswerNote{}, "/remember Expected union value"},
		{`{"remember":""}`, AnswerNote{}, "/remember Expected union value"},
		{`{"option_id":""}`, AnswerNote{}, "/option_id Expected non-empty string"},
		{`{"remember":"session","rule":""}`, AnswerNote{}, "/rule Expected non-empty string"},
		{`{"remember":true}`, AnswerNote{}, "/remember Expected union value"},
		{`{"option_id":1}`, AnswerNote{}, "/option_id Expected string"},
		{`{"rule":["a"]}`, AnswerNote{}, "/rule Expected string"},
		{`{"reason":{"rule":"a","rule":"b"}}`, AnswerNote{}, "/reason Expected string"},
		{`{"option_id":nil}`, AnswerNote{}, "expected a value"},
		{`{"option_id":"a","option_id":"a"}`, AnswerNote{}, "/option_id Duplicate property"},
		{`{"option_id":null,"option_id":"a"}`, AnswerNote{}, "/option_id Duplicate property"},
		{`{"rule":"a","\u0072ule":null}`, AnswerNote{}, "/rule Duplicate property"},
	} {
		got, err := ParseAnswerNote(test.text)
		switch {
		case got != test.want || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err):
			t.Errorf("%.99q: got %+v, %v; want %+v, %q", test.text, got, err, test.want, test.err)
		case errors.Is(err, ErrNoNote) != (test.err == "no note"):
			t.Errorf("%.99q: got %v, want that told apart from words", test.text, err)
		case err != nil && len(err.Error()) > 200:
			t.Errorf("%.99q: got an error of %d bytes, want one fit to be shown", test.text, len(err.Error()))
		}
	}
}

func TestWishIsTheFirstThatAPersonSays(t *testing.T) {
	words, lasts, named, broken := "Go on.", `{"remember":"session"}`, `{"option_id":"a","reason":"Why not?"}`, `{"remember"`
	session, option := AnswerNote{Remember: RememberSession}, AnswerNote{OptionID: "a", Reason: "Why not?"}
	for _, test := range []struct {
		reason string
		texts  []string
		want   AnswerNote
		told   string
		fails  bool
	}{
		{words, nil, AnswerNote{}, words, false},
		{words, []string{words}, AnswerNote{}, words, false},
		{lasts, nil, session, "", false},
		{named, nil, option, "Why not?", false},
		{named, []string{lasts, broken}, option, "Why not?", false},
		{words, []string{words, named, lasts}, option, words, false},
		{broken, []string{named}, AnswerNote{}, broken, true},
		{words, []string{broken, named}, AnswerNote{}, words, true},
		{words, []string{named, broken}, option, words, false},
		{"", []string{lasts}, session, "", false},
	} {
		out := Outcome{By: ResolvedByUser, Reason: test.reason, Content: []ContentBlock{{Type: "image", Text: broken}}}
		for _, text := range test.texts {
			out.Content = append(out.Content, ContentBlock{Type: "text", Text: text})
		}
		got, told, err := out.Note()
		if got != test.want || told != test.told || (err != nil) != test.fails {
			t.Errorf("%q, %q: got %+v, %q, %v; want %+v, %q, an error: %t", test.reason, test.texts, got, told, err, test.want, test.told, test.fails)
		}
		for _, by := range []Resolver{"", ResolvedByPolicy, ResolvedByClient, ResolvedByRuntime} {
			out.By = by
			if got, told, err := out.Note(); got != (AnswerNote{}) || told != test.reason || err != nil {
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
	session, x := AnswerNote{Remember: RememberSession}, AnswerNote{OptionID: "x"}
	for _, test := range []struct {
		options  ApprovalOptions
		approved bool
		wish     AnswerNote
		want     string // the option's id
	}{
		{all, true, AnswerNote{}, "a"},
		{all, false, AnswerNote{}, "r"},
		{all, true, session, "A"},
		{all, false, session, "R"},
		{all[:1], true, AnswerNote{}, "A"},
		{all[1:3], true, session, "a"},
		{all[1:3], false, session, "r"},
		{all[3:], false, AnswerNote{}, "R"},
		{all[:2], false, AnswerNote{}, ""},
		{all[2:], true, AnswerNote{}, ""},
		{nil, true, AnswerNote{}, ""},
		{all, true, x, "x"},
		{all, false, x, "x"},
		{all, true, AnswerNote{OptionID: "R"}, "R"},
		{all, true, AnswerNote{OptionID: "A"}, "A"},
		{all, false, AnswerNote{OptionID: "A"}, "r"},
		{all, false, AnswerNote{OptionID: "A", Remember: RememberSession}, "R"},
		{all[:2], false, AnswerNote{OptionID: "a"}, ""},
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
		got, err := ParseAnswerNote(text)
		if err == nil {
			var want AnswerNote
			if err := json.Unmarshal([]byte(strings.TrimSpace(text)), &want); err != nil || got != want || !utf8.ValidString(text) {
				t.Errorf("%q: got %+v, want %+v, %v", text, got, want, err)
			}
			checkWritten(t, got)
		} else if got != (AnswerNote{}) || errors.Is(err, ErrNoNote) == strings.HasPrefix(strings.TrimSpace(text), "{") {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
		w := AnswerNote{OptionID: option, Rule: rule, Reason: reason}
		if remember {
			w.Remember = RememberSession
		}
		if utf8.ValidString(option + " " + rule + " " + reason) {
			checkWritten(t, w)
		}
	})
}

func checkWritten(t *testing.T, w AnswerNote) {
	if got, err := ParseAnswerNote(w.String()); err != nil || got != w {
		t.Errorf("%s: got %+v, %v; want %+v", w, got, err, w)
	}
}
