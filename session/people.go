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
	cutContent(&record.Content, &record.Truncated)
	addLast(&s.knownPeople().Prompts, record)
}

func (s *State) requestAnswered(e *contracts.RequestAnswered) {
	addLast(&s.knownPeople().Answers, contracts.AnswerRecord(*e))
}

// cutContent cuts the content of a prompt to contracts.MaxPromptRecord.
func cutContent(content *string, truncated *bool) {
	if len(*content) > contracts.MaxPromptRecord {
		*content = strings.Clone(contracts.SplitText(*content, contracts.MaxPromptRecord)[0])
		*truncated = true
	}
}

func (s *State) queueChanged(e *contracts.QueueChanged) {
	list := slices.Clone(e.Prompts[:min(len(e.Prompts), contracts.MaxQueued)]) // snapshots share it
	for i := range list {
		cutContent(&list[i].Content, &list[i].Truncated)
	}
	known := s.knownPeople()
	known.Queue, known.QueueHeld = list, e.Held
}

// addLast adds an entry to a list of the last contracts.MaxPeople.
func addLast[T any](list *[]T, e T) {
	over := max(0, len(*list)+1-contracts.MaxPeople)
	*list = append(slices.Delete(*list, 0, over), e)
}

// restorePeople sets the people of a snapshot, cut to this package's limits.
func (s *State) restorePeople(from *contracts.People) {
	s.people = &contracts.People{Controller: from.Controller}
	s.queueChanged(&contracts.QueueChanged{Prompts: from.Queue, Held: from.QueueHeld})
	for _, p := range from.Prompts {
		s.promptAccepted((*contracts.PromptAccepted)(&p))
	}
	for _, a := range from.Answers {
		s.requestAnswered((*contracts.RequestAnswered)(&a))
	}
}
