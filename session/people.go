package session

import (
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// People returns who did what last. The result does not change afterwards, and is
// never nil.
func (s *State) People() *contracts.People {
	var known contracts.People
	if s.people != nil {
		known = *s.people
	}
	known.Prompts, known.Answers = copyList(known.Prompts), copyList(known.Answers)
	return &known
}

func (s *State) knownPeople() *contracts.People {
	if s.people == nil {
		s.people = &contracts.People{}
	}
	return s.people
}

func (s *State) promptAccepted(e *contracts.PromptAccepted) {
	record := contracts.PromptRecord(*e)
	if len(record.Content) > contracts.MaxPromptRecord {
		record.Content = strings.Clone(contracts.SplitText(record.Content, contracts.MaxPromptRecord)[0])
		record.Truncated = true
	}
	addLast(&s.knownPeople().Prompts, record)
}

func (s *State) requestAnswered(e *contracts.RequestAnswered) {
	addLast(&s.knownPeople().Answers, contracts.AnswerRecord(*e))
}

// addLast adds an entry to a list of the last contracts.MaxPeople.
func addLast[T any](list *[]T, e T) {
	over := max(0, len(*list)+1-contracts.MaxPeople)
	*list = append(slices.Delete(*list, 0, over), e)
}

// restorePeople sets the people of a snapshot, cut to this package's limits.
func (s *State) restorePeople(from *contracts.People) {
	s.people = &contracts.People{Controller: from.Controller}
	for _, p := range from.Prompts {
		s.promptAccepted((*contracts.PromptAccepted)(&p))
	}
	for _, a := range from.Answers {
		s.requestAnswered((*contracts.RequestAnswered)(&a))
	}
}
