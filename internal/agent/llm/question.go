package llm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
)

// askUser asks the person. The limits of its arguments are those of the wire.
var askUser = model.Tool{
	Name:        "ask_user",
	Description: "Ask the person one to four questions, each with two to four options to choose from; they may also answer in their own words. Use it for what you cannot find out and should not decide yourself.",
	Schema:      tool.SchemaOf[questions](),
}

// questions are the arguments of askUser.
type questions struct {
	Questions []question `json:"questions" min:"1" max:"4"`
}

type question struct {
	Header      string   `json:"header" min:"1" max:"12" about:"A label of at most 12 characters"`
	Question    string   `json:"question" min:"5" max:"500"`
	Options     []option `json:"options" min:"2" max:"4"`
	MultiSelect bool     `json:"multiSelect,omitempty" about:"Whether several options may be chosen"`
}

type option struct {
	Label       string  `json:"label" min:"1" max:"50"`
	Description string  `json:"description" max:"200"`
	Preview     preview `json:"preview,omitzero"`
}

type preview struct {
	Kind  string `json:"kind" enum:"markdown,text,diff"`
	Title string `json:"title,omitempty" max:"80"`
	Body  string `json:"body" max:"12000"`
}

// question asks the person the questions of a call.
func (r *run) question(ctx context.Context, c *call) error {
	var all questions
	if err := tool.Decode(c.Args, &all); err != nil {
		return r.refuse(ctx, c, "invalid_arguments", "Nobody was asked. "+err.Error())
	}
	args, _ := json.Marshal(all) // texts can be encoded
	return r.put(ctx, c, &contracts.ServerRequest{
		RequestType: contracts.RequestUserInput, Args: args, Reason: "Agent requested structured user input",
	})
}

// clientTool asks the controlling client to run a call.
func (r *run) clientTool(ctx context.Context, c *call) error {
	tools := r.opts.ClientTools() // of another client, if control has moved
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

// put asks a client for the result of a call.
func (r *run) put(ctx context.Context, c *call, req *contracts.ServerRequest) error {
	suffix := ""
	if c.announce == nil {
		suffix = ":answer" // the approval had the id of the call
	}
	out, err := r.ask(ctx, c, suffix, req)
	if err != nil {
		return err
	}
	return errors.Join(r.conclude(ctx, c, answerOf(req.RequestType, out), turn.After(c.Shown, out.Verdict)), r.withdrawn(ctx, out))
}

// answerOf returns a client's answer as a result, which says so if there is none.
func answerOf(kind contracts.RequestType, out contracts.Outcome) tool.Result {
	var result tool.Result
	var texts []string
	for _, block := range out.Content {
		data, err := base64.StdEncoding.DecodeString(block.Data)
		switch {
		case block.Type == "text":
			texts = append(texts, block.Text)
		case err != nil:
			texts = append(texts, "[an image that could not be read]")
		default:
			result.Images = append(result.Images, model.Image{MimeType: block.MimeType, Data: data})
		}
	}
	result.Text = strings.Join(texts, "\n")
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
