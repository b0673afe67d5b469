package contracts

import "testing"

func TestClassify(t *testing.T) { // R102
	for _, test := range []struct {
		text  string
		fatal bool
		want  ErrorType
	}{
		{"Run interrupted by user", false, ErrorCancelled},
		{"Operation ABORTED", true, ErrorCancelled},
		{"request cancelled after timeout", false, ErrorCancelled},
		{"Rate limit exceeded", false, ErrorTransient},
		{"Temporary server error", false, ErrorTransient},
		{"model is overloaded", true, ErrorTransient},
		{"tool timeout", false, ErrorTransient},
		{"Permission denied", false, ErrorTool},
		{"approval missing in protocol", true, ErrorTool},
		{"unknown tool in JSON", false, ErrorTool},
		{"Failed to parse JSON input", false, ErrorProtocol},
		{"bad Protocol", true, ErrorProtocol},
		{"Unexpected failure", false, ErrorTool},
		{"Unexpected failure", true, ErrorFatal},
		{"interrupt", false, ErrorTool}, // only the past tense counts
		{"", true, ErrorFatal},
	} {
		if got := Classify(test.text, test.fatal); got != test.want {
			t.Errorf("%q, fatal %v: got %s, want %s", test.text, test.fatal, got, test.want)
		}
	}
}
