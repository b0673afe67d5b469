package main

import (
	"github.com/spf13/cobra"

	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
)

// registerHecate adds the flags of the logs of Hecate events.
func (s *settings) registerHecate(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.hecateVocabulary, "hecate-vocabulary", string(wire.VocabularyTurn), "names in Hecate events of new sessions: turn or model_call")
	f.BoolVar(&s.hecate.Thinking, "hecate-thinking", false, "show the reasoning of models in Hecate events")
	complete(cmd, "hecate-vocabulary", cobra.ShellCompDirectiveNoFileComp, vocabularies...)
}

var vocabularies = []string{string(wire.VocabularyTurn), string(wire.VocabularyModelCall)}
