package llm

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// maxInstructionBytes bounds what a workspace adds to the system prompt.
const maxInstructionBytes = 32 << 10

// basePrompt is the system prompt until an init replaces it.
func basePrompt(dir string) string {
	return `You are a coding agent. You work in a directory with the tools you are given, for a person who sees what you say and what you do.

- Find out before you change something: read the files that matter.
- Make the smallest change that does what was asked, in the style of what is there.
- Check your work with the means of the project, such as its tests.
- A call may be denied. Do not try to reach the same by another way; say what you wanted and why, or ask.
- Ask the person only what you cannot find out, and never make up an answer for them.
- When you are done, say briefly what you did and what is left open.

Working directory: ` + dir + `
Operating system: ` + runtime.GOOS
}

// system returns the system prompt of the next turn, and the effort.
func (a *Agent) system() (prompt string, effort model.Effort) {
	a.mu.Lock()
	prompt, effort = a.prompt, a.effort
	a.mu.Unlock()
	for _, name := range []string{"AGENTS.md", "CLAUDE.md"} {
		if text := instructions(a.opts.Workspace, name); text != "" {
			return paragraphs(prompt, "Instructions of the project, from "+name+":\n\n"+text), effort
		}
	}
	return prompt, effort
}

// paragraphs joins two texts with an empty line between them.
func paragraphs(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "\n\n" + second
}

// instructions returns the beginning of a file in the root, "" without a file.
func instructions(dir *workspace.Workspace, name string) string {
	f, err := dir.OpenFile(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, maxInstructionBytes+1))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(bounded(string(text), maxInstructionBytes))
}

// noAnswer separates two prompts if the first had no answer. Providers want both in
// one message, which some models see as one text.
const noAnswer = "[There was no answer to what stands before this. The next prompt follows.]"

// promptParts returns the attachments of a prompt and then its text.
func promptParts(work contracts.Work) []model.Part {
	var parts []model.Part
	for _, a := range work.Attachments {
		if a.Data != nil {
			parts = append(parts, textPart("Attached image "+a.Path+":"),
				model.Part{Image: &model.Image{MimeType: a.MimeType, Data: a.Data}})
			continue
		}
		parts = append(parts, textPart("Attached file "+a.Path+":\n\n"+fenced(filepath.Ext(a.Path), a.Text)))
	}
	if strings.TrimSpace(work.Content) != "" {
		parts = append(parts, textPart(work.Content))
	}
	return parts
}

// fenced returns a text in a code block whose fence does not occur in the text.
func fenced(ext, text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + strings.TrimPrefix(ext, ".") + "\n" + strings.TrimSuffix(text, "\n") + "\n" + fence
}

func textPart(text string) model.Part {
	text = valid(text)
	return model.Part{Text: &text}
}

// valid returns text with U+FFFD for what is not UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// bounded returns about limit bytes of a text: its beginning and its end, and how
// many bytes are left out between them.
func bounded(text string, limit int) string {
	text = valid(text)
	if len(text) <= limit {
		return text
	}
	head := abridge.Head(text, limit*3/4)
	tail := contracts.TailText(text, limit/4)
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", head, len(text)-len(head)-len(tail), tail)
}
