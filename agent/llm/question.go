package llm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/agent/llm/tool"
	"github.com/seed-028515a8/maestro/agent/turn"
	"github.com/seed-028515a8/maestro/contracts"
)

// askUser puts questions to the person. The limits are those of the wire.
var askUser = model.Tool{
	Name:        "ask_user",
	Description: "Ask the person one to four questions, each with two to four options to choose from; they may also answer in their own words. Use it for what you cannot find out and should not decide yourself.",
	Schema: json.RawMessage(`{"type":"object","required":["questions"],"additionalProperties":false,"properties":{"questions":{
"type":"array","minItems":1,"maxItems":4,"items":{"type":"object","required":["header","question","options"],"additionalProperties":false,"properties":{
"header":{"type":"string","maxLength":12,"description":"A label of at most 12 characters"},
"question":{"type":"string","minLength":5,"maxLength":500},
"multiSelect":{"type":"boolean","description":"Whether several options may be chosen"},
"options":{"type":"array","minItems":2,"maxItems":4,"items":{"type":"object","required":["label","description"],"additionalProperties":false,"properties":{
"label":{"type":"string","maxLength":50},
"description":{"type":"string","maxLength":200},
"preview":{"type":"object","required":["kind","body"],"additionalProperties":false,"properties":{
"kind":{"type":"string","enum":["markdown","text","diff"]},
"title":{"type":"string","maxLength":80},
"body":{"type":"string","maxLength":12000}}}}}}}}}}}`),
}

// questions are the arguments of askUser.
type questions struct {
	Questions []question `json:"questions"`
}

type question struct {
	Header      string   `json:"header"`
	Question    string   `json:"question"`
	Options     []option `json:"options"`
	MultiSelect bool     `json:"multiSelect,omitempty"`
}

type option struct {
	Label       string   `json:"label"`
	Description string   `json:"description"`
	Preview     *preview `json:"preview,omitempty"`
}

type preview struct {
	Kind  string `json:"kind"`
	Title string `json:"title,omitempty"`
	Body  string `json:"body"`
}

// parseQuestions returns the arguments of a call, or what is wrong with them in
// words for the model.
func parseQuestions(args json.RawMessage) (questions, []string) {
	var all questions
	if err := json.Unmarshal(args, &all); err != nil {
		return questions{}, []string{err.Error()}
	}
	c := &check{}
	c.count("questions", len(all.Questions), 1, 4)
	for i, q := range all.Questions {
		at := fmt.Sprintf("questions[%d].", i)
		c.length(at+"header", q.Header, 1, 12)
		c.length(at+"question", q.Question, 5, 500)
		c.count(at+"options", len(q.Options), 2, 4)
		for j, o := range q.Options {
			c.option(fmt.Sprintf("%soptions[%d].", at, j), o)
		}
	}
	return all, c.wrong
}

// A check collects what is wrong.
type check struct{ wrong []string }

func (c *check) option(at string, o option) {
	c.length(at+"label", o.Label, 1, 50)
	c.length(at+"description", o.Description, 0, 200)
	if o.Preview == nil {
		return
	}
	switch o.Preview.Kind {
	case "markdown", "text", "diff":
	default:
		c.wrong = append(c.wrong, at+"preview.kind is not markdown, text or diff")
	}
	c.length(at+"preview.title", o.Preview.Title, 0, 80)
	c.length(at+"preview.body", o.Preview.Body, 0, 12_000)
}

// length counts characters as clients in browsers do.
func (c *check) length(what, text string, least, most int) {
	if n := len(utf16.Encode([]rune(text))); n < least || n > most {
		c.wrong = append(c.wrong, fmt.Sprintf("%s has %d characters, want %d to %d", what, n, least, most))
	}
}

func (c *check) count(what string, n, least, most int) {
	if n < least || n > most {
		c.wrong = append(c.wrong, fmt.Sprintf("%s has %d items, want %d to %d", what, n, least, most))
	}
}

// question puts the questions of a call to the person.
func (r *run) question(ctx context.Context, c *call) error {
	all, wrong := parseQuestions(c.Args)
	if len(wrong) > 0 {
		return r.refuse(ctx, c, "invalid_arguments", "Nobody was asked: "+strings.Join(wrong, "; ")+".")
	}
	args, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode args: %w", err)
	}
	return r.put(ctx, c, &contracts.ServerRequest{
		RequestType: contracts.RequestUserInput, Args: args, Reason: "Agent requested structured user input",
	})
}

// clientTool has the controlling client run a call.
func (r *run) clientTool(ctx context.Context, c *call) error {
	tools := r.opts.ClientTools() // of another client, if control was taken meanwhile
	if len(tools) > 0 && !slices.ContainsFunc(tools, func(t model.Tool) bool { return t.Name == c.Tool }) {
		return r.refuse(ctx, c, "unknown_tool", "There is no tool "+c.Tool+" any more: another client is in control.")
	}
	if len(c.Args) > maxArgsBytes {
		return r.refuse(ctx, c, "invalid_arguments", fmt.Sprintf("The arguments have %d bytes, and the client takes at most %d.", len(c.Args), maxArgsBytes))
	}
	return r.put(ctx, c, &contracts.ServerRequest{
		RequestType: contracts.RequestClientTool, Args: c.Args, Reason: "Client tool " + c.Tool + " requires local execution",
	})
}

// put asks for what only a client can give.
func (r *run) put(ctx context.Context, c *call, req *contracts.ServerRequest) error {
	req.RequestID, req.CallID, req.Tool = c.shown, c.shown, c.Tool
	if c.announce == nil {
		req.RequestID += ":answer" // the call's own id was that of its approval
	}
	out, err := r.host.Ask(ctx, req, contracts.AskOptions{})
	if err != nil {
		return r.stopped(ctx, err)
	}
	if out.Announced {
		c.announce = nil
	}
	return errors.Join(r.conclude(ctx, c, answerOf(req.RequestType, out), turn.After(c.shown, out.Verdict)), r.withdrawn(ctx, out))
}

// answerOf is what the model is told of an answer, or of there being none. It is
// never made up.
func answerOf(kind contracts.RequestType, out contracts.Outcome) tool.Result {
	result := blocks(out.Content)
	if out.Verdict == contracts.VerdictAnswered || out.Verdict == contracts.VerdictCompleted {
		if result.Text == "" && len(result.Images) == 0 {
			result.Text = "(an empty answer)"
		}
		return result
	}
	what := "The person did not answer; do not assume an answer."
	if kind == contracts.RequestClientTool {
		what = "The client did not run the tool to its end."
	}
	for _, more := range []string{out.Reason, result.Text} {
		if more != "" && !strings.Contains(what, more) {
			what += " " + more
		}
	}
	return tool.Result{Text: what, Images: result.Images, IsError: true}
}

// blocks returns what a client answered with.
func blocks(content []contracts.ContentBlock) tool.Result {
	var result tool.Result
	var texts []string
	for _, block := range content {
		if block.Type == "text" {
			texts = append(texts, block.Text)
			continue
		}
		data, err := base64.StdEncoding.DecodeString(block.Data)
		if err != nil {
			texts = append(texts, "[an image that could not be read]")
			continue
		}
		result.Images = append(result.Images, model.Image{MimeType: block.MimeType, Data: data})
	}
	result.Text = strings.Join(texts, "\n")
	return result
}
