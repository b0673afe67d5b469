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
	known.Requests = s.shownRequests()
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

func (s *State) addAnswer(record contracts.AnswerRecord) { addLast(&s.knownPeople().Answers, record) }

// cutContent cuts the content of a prompt, or the display of a request, to contracts.MaxPromptRecord.
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

func (s *State) requestShown(e *contracts.RequestShown) {
	s.addShown(contracts.ShownRecord{
		RequestID: e.RequestID, Digest: e.Digest, Display: e.Display, Escaped: e.Escaped,
		Truncated: e.Truncated, VotesNeeded: e.VotesNeeded,
	})
}

// addShown adds a record of a request, which may be about to come, and drops those of
// requests that ended.
func (s *State) addShown(record contracts.ShownRecord) {
	cutContent(&record.Display, &record.Truncated)
	others := slices.DeleteFunc(s.shownRequests(), func(r contracts.ShownRecord) bool { return r.RequestID == record.RequestID })
	s.knownPeople().Requests = append(others, record)
}

func (s *State) requestVoted(e *contracts.RequestVoted) {
	list := s.knownPeople().Requests
	i := slices.IndexFunc(list, func(r contracts.ShownRecord) bool { return r.RequestID == e.RequestID })
	if i >= 0 && e.Approved {
		list[i].Votes = append(slices.Clip(list[i].Votes), e.Author)
	}
}

// shownRequests returns the records of the requests that are pending.
func (s *State) shownRequests() []contracts.ShownRecord {
	shown := []contracts.ShownRecord{}
	if s.people == nil {
		return shown
	}
	for _, r := range s.people.Requests {
		if slices.ContainsFunc(contracts.RequestTypes(), func(kind contracts.RequestType) bool {
			return slices.ContainsFunc(*s.pendingList(kind), hasID(r.RequestID))
		}) {
			shown = append(shown, r)
		}
	}
	return shown
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
		s.addAnswer(a)
	}
	for _, r := range from.Requests {
		s.addShown(r)
	}
}
