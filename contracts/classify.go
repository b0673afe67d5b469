package contracts

import "strings"

// errorWords lists the words that decide the type of an error text, in order of
// precedence (R102).
var errorWords = []struct {
	errorType ErrorType
	words     []string
}{
	{ErrorCancelled, []string{"abort", "interrupted", "cancel"}},
	{ErrorTransient, []string{"rate limit", "overloaded", "timeout", "temporar"}},
	{ErrorTool, []string{"tool", "permission", "approval"}},
	{ErrorProtocol, []string{"parse", "json", "protocol"}},
}

// Classify guesses the type of an error from its text (R102). It is for errors from
// outside, such as a provider's. A contracts.Error carries its type.
func Classify(text string, fatal bool) ErrorType {
	text = strings.ToLower(text)
	for _, group := range errorWords {
		for _, word := range group.words {
			if strings.Contains(text, word) {
				return group.errorType
			}
		}
	}
	if fatal {
		return ErrorFatal
	}
	return ErrorTool
}
