//go:build unix

package suitetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
)

// Object is a JSON object.
type Object = map[string]any

// A Chunk is a piece of an answer of the model.
type Chunk struct {
	ID      string
	Choices []struct {
		Delta struct {
			Content   string
			ToolCalls []any `json:"tool_calls"`
		}
	}
	Usage Object
}

// A ModelError is a refusal of the model.
type ModelError struct {
	Status  int
	Details Object
}

func (e *ModelError) Error() string {
	text, _ := e.Details["error"].(Object)["message"].(string)
	return text
}

// Ask streams one answer of the model at an address. It returns the text and the calls.
func Ask(ctx context.Context, url string, request Object, each func(Chunk)) (string, []any, error) {
	request["stream"] = true
	body, err := json.Marshal(request)
	if err != nil {
		return "", nil, err
	}
	r, err := http.NewRequestWithContext(ctx, "POST", url+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	if resp.StatusCode != 200 {
		refused := &ModelError{Status: resp.StatusCode}
		_ = json.NewDecoder(resp.Body).Decode(&refused.Details) // without details it has no text
		return "", nil, refused
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
		var chunk Chunk
		if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
			return "", nil, err
		}
		each(chunk)
		text.WriteString(chunk.Choices[0].Delta.Content)
		calls = append(calls, chunk.Choices[0].Delta.ToolCalls...)
	}
	return text.String(), calls, lines.Err()
}

// Shell runs a command and returns its output. Its processes end with ctx, but for orphans.
func Shell(ctx context.Context, command string, orphans bool) string {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !orphans {
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	}
	text, _ := cmd.CombinedOutput() // a command may fail
	return string(text)
}
