package acpserver

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestPromptsBecomeText(t *testing.T) {
	embedded := acp.ResourceBlock(acp.EmbeddedResourceResource{TextResourceContents: &acp.TextResourceContents{Uri: "file:///w/a%20b.go", Text: "x := ```\n"}})
	for _, tt := range []struct {
		name   string
		blocks []acp.ContentBlock
		want   contracts.Prompt
	}{
		{"text", []acp.ContentBlock{acp.TextBlock("say "), acp.TextBlock("hi")}, contracts.Prompt{Content: "say hi"}},
		{"link", []acp.ContentBlock{acp.TextBlock("read "), acp.ResourceLinkBlock("a", "file:///w/a.go")}, contracts.Prompt{Content: "read @/w/a.go"}},
		{"place in a file", []acp.ContentBlock{acp.ResourceLinkBlock("a", "file:///w/a.go#L3-5")}, contracts.Prompt{Content: "@/w/a.go#L3-5"}},
		{"address", []acp.ContentBlock{acp.ResourceLinkBlock("a", "https://example.org/a.png")}, contracts.Prompt{Content: "@https://example.org/a.png"}},
		{"link to an image", []acp.ContentBlock{acp.TextBlock("see "), acp.ResourceLinkBlock("a", "file:///w/a.PNG")}, contracts.Prompt{Content: "see @/w/a.PNG", Attachments: []string{"/w/a.PNG"}}},
		{"embedded", []acp.ContentBlock{acp.TextBlock("why?"), embedded}, contracts.Prompt{Content: "why?\n\n/w/a b.go:\n````\nx := ```\n````\n\n"}},
	} {
		got, err := promptOf(tt.blocks)
		if err != nil || !reflect.DeepEqual(*got, tt.want) {
			t.Errorf("%s: got %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
	for name, blocks := range map[string][]acp.ContentBlock{
		"nothing": nil, "blank": {acp.TextBlock(" \n")}, "image": {acp.ImageBlock("aGk=", "image/png")}, "audio": {acp.AudioBlock("aGk=", "audio/wav")},
	} {
		if got, err := promptOf(blocks); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
}

func TestOnlyNewTextIsShownAfterAGap(t *testing.T) {
	long := strings.Repeat("0123456789", 1000)
	for _, tt := range []struct{ name, shown, text, want string }{
		{"nothing shown", "", "abc", "abc"},
		{"more", "abc", "abcdef", "def"},
		{"the same", "abc", "abc", ""},
		{"the beginning is gone", long + "abc", long[5000:] + "abcdef", "def"},
	} {
		if got := newText(tt.shown, tt.text); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := newText("abc", "xyz"); !strings.HasSuffix(got, "\n\nxyz") || !strings.Contains(got, "not kept") {
		t.Errorf("got %q, want that some is missing, and the rest", got)
	}
}

func TestTitlesSayWhatACallDoes(t *testing.T) {
	for args, want := range map[string]string{
		`{"command":"ls -l\n"}`:            "ls -l",
		`{"command":"a\nb"}`:               "a …",
		`{"path":"a.go"}`:                  "tool a.go",
		`{"file_path":"b.go","command":7}`: "tool b.go",
		`{"_acp":{"title":"Edit c.go"}}`:   "Edit c.go",
		`[1]`:                              "tool",
		`{"command":"` + strings.Repeat("é", 200) + `"}`: strings.Repeat("é", 100) + " …",
	} {
		in := inputsOf(json.RawMessage(args))
		if got := in.title("tool"); got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}

func TestAnswersSayWhichOptionWasChosen(t *testing.T) {
	own := contracts.ApprovalOptions{{ID: "a", Name: "Always", Kind: "allow_always"}, {ID: "n", Name: "No", Kind: "reject_once"}}
	for _, tt := range []struct {
		options  contracts.ApprovalOptions
		id       string
		approved bool
		reason   string
	}{
		{yesOrNo, "allow", true, ""},
		{yesOrNo, "reject", false, ""},
		{own, "a", true, `{"option_id":"a","remember":"session"}`},
		{own, "n", false, `{"option_id":"n"}`},
	} {
		got, err := choose(tt.options, tt.id, &contracts.ServerRequestResponse{})
		if err != nil || got.Approved == nil || *got.Approved != tt.approved || got.Reason != tt.reason {
			t.Errorf("%s: got %+v, %v, want %v and %q", tt.id, got, err, tt.approved, tt.reason)
		}
	}
	if got, err := choose(yesOrNo, "maybe", &contracts.ServerRequestResponse{}); err == nil {
		t.Errorf("got %+v, want an error for an option that was not offered", got)
	}
}

func TestQuestionsBecomeForms(t *testing.T) {
	all := contracts.UserQuestions(json.RawMessage(`{"questions":[
		{"header":"Colour","question":"Which colour?","options":[{"label":"red","description":"warm"},{"label":"blue"}]},
		{"header":"Sizes","question":"Which sizes?","multiSelect":true,"options":[{"label":"S"},{"label":"L"}]}]}`))
	form, message := formOf(all)
	text, err := json.Marshal(form)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"answer1":{"description":"Which colour?","oneOf":[{"const":"red","title":"red: warm"},{"const":"blue","title":"blue"}],"title":"Colour","type":"string"},` +
		`"answer2":{"description":"Which sizes?","items":{"anyOf":[{"const":"S","title":"S"},{"const":"L","title":"L"}]},"title":"Sizes","type":"array"}}`
	if string(text) != want || message != "The agent asks:" {
		t.Errorf("got %s and %q, want %s", text, message, want)
	}
	got := textOf(all, map[string]json.RawMessage{"answer1": json.RawMessage(`"red"`), "answer2": json.RawMessage(`["S","L"]`)})
	if want := "Colour: red\nSizes: S, L"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOutputKeepsItsEnd(t *testing.T) {
	c := &call{}
	c.append("first\n")
	c.append(strings.Repeat("x", maxOutput))
	if len(c.output) != maxOutput || !c.cut || strings.Contains(c.output, "first") {
		t.Errorf("got %d bytes, cut %v, want the last %d", len(c.output), c.cut, maxOutput)
	}
	if got := c.content()[0].Content.Content.Text.Text; !strings.HasPrefix(got, "[the beginning of the output is left out]\n```") {
		t.Errorf("got %.60q, want that the beginning is left out", got)
	}
}

func TestEmptyFormsMayBeLists(t *testing.T) {
	for text, want := range map[string]int{`{"action":"accept","content":[]}`: 0, `{"action":"accept","content":{"a":1}}`: 1, `{"action":"accept"}`: 0} {
		if got, err := readAnswer([]byte(text)); err != nil || len(got.Content) != want {
			t.Errorf("%s: got %v, %v, want %d fields", text, got.Content, err, want)
		}
	}
}

// An editor shows the title and the content of a question, and not always the raw input.
func TestQuestionsShowTheWholeCommand(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ args, title, shown string }{
		{`{"command":"ls -l"}`, "ls -l", ""},
		{`{"path":"a.go","content":"x\ny"}`, "write a.go", ""},
		{`{"command":"ls\nrm -rf /"}`, "ls …", "ls\nrm -rf /"},
		{`{"command":"rm -rf /","_acp":{"title":"List files"}}`, "List files", "rm -rf /"},
		{`{"command":"ls -l","_acp":{"title":"` + "`ls -l`" + `"}}`, "`ls -l`", ""},
		{`{"command":"echo \u202e# dlrow"}`, "echo # dlrow", `write {"command":"echo \u202e# dlrow"}`},
		{`{"path":"a\u200b.go"}`, "write a\u200b.go", `write {"path":"a\u200b.go"}`},
		{`{"command":"` + long + `"}`, long[:200] + " …", long},
	} {
		in := inputsOf([]byte(tt.args))
		shown := ""
		if list := in.toApprove("write", []byte(tt.args)); len(list) > 0 {
			shown = list[0].Content.Content.Text.Text
		}
		if tt.shown != "" {
			tt.shown = "```\n" + tt.shown + "\n```\n"
		}
		if got := in.title("write"); got != tt.title || shown != tt.shown {
			t.Errorf("%s: got title %q and %q, want %q and %q", tt.args, got, shown, tt.title, tt.shown)
		}
	}
}
