//go:build unix

package chord_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// offered are the tools of the fake.
var offered = []object{
	tool("shell", object{"command": object{"type": "string"}, "description": object{"type": "string"}}, "command", "description"),
	tool("question", object{"questions": object{"type": "array", "items": object{"type": "object", "properties": object{
		"question": object{"type": "string"}, "multiple": object{"type": "boolean"}, "header": object{"type": "string"},
		"options": object{"type": "array", "items": object{"type": "object", "properties": object{"id": object{"type": "string"}}, "required": []any{"id"}}},
	}, "required": []any{"header"}}}}, "questions"),
	tool("todo_write", object{"todos": object{"type": "array"}}, "todos"),
}

func tool(name string, properties object, required ...string) object {
	return object{"type": "function", "function": object{"name": name, "parameters": object{"type": "object", "properties": properties, "required": required}}}
}

// ask streams one answer of the model. It calls began at the first text.
func ask(ctx context.Context, body []byte, began func()) (string, []any, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", os.Getenv("OPENAI_BASE_URL")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		text, _ := io.ReadAll(resp.Body)
		return "", nil, fmt.Errorf("%s", text)
	}
	var text strings.Builder
	var calls []any
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: {")
		if !ok {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content   string
					ToolCalls []any `json:"tool_calls"`
				}
			}
		}
		if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
			return "", nil, err
		}
		if d := chunk.Choices[0].Delta; d.Content != "" {
			if text.Len() == 0 {
				began()
			}
			text.WriteString(d.Content)
		} else {
			calls = append(calls, d.ToolCalls...)
		}
	}
	return text.String(), calls, lines.Err()
}
