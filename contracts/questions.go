package contracts

import (
	"encoding/json"
	"strings"
)

// A UserQuestion is one question of a request for user input.
type UserQuestion struct {
	Header   string `json:"header"`
	Question string `json:"question"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
	MultiSelect bool `json:"multiSelect"`
}

// UserQuestions returns the questions in the args of a request for user input, none if
// the form of the args is unknown.
func UserQuestions(args json.RawMessage) []UserQuestion {
	var a struct {
		Questions []UserQuestion `json:"questions"`
	}
	if json.Unmarshal(args, &a) != nil {
		return nil
	}
	return a.Questions
}

// UserAnswer returns the answers to questions as the text for the agent.
func UserAnswer(questions []UserQuestion, answers []string) string {
	if len(questions) == 1 {
		return answers[0]
	}
	lines := make([]string, len(answers))
	for i, q := range questions {
		lines[i] = q.Header + ": " + answers[i]
	}
	return strings.Join(lines, "\n")
}

// NoUserAnswer is the text for the agent if the user does not answer.
const NoUserAnswer = "The user did not answer."
