package agent

import (
	"fmt"

	"github.com/seed-028515a8/maestro/contracts"
)

// maxWireIDs bounds the remembered ids. Beyond it, every id of a later child is
// renamed.
const maxWireIDs = 4096

// A wireIDs makes the ids of successive children distinct: a child that counts
// its responses from one would otherwise reuse ids of its predecessor (R36). An
// id is renamed only if an earlier child used it, or may have used it in an
// earlier server process. Children do not overlap, so it needs no lock.
type wireIDs struct {
	process    string         // set if there was an earlier server process; distinguishes the ids of this one
	generation int            // of the current child, from 1
	first      map[string]int // the generation that first used an id
	full       int            // the generation that filled first, or 0
}

func newWireIDs() *wireIDs { return &wireIDs{first: map[string]int{}} }

// name returns the id that clients see for a child's id. It is constant for the
// life of a child.
func (w *wireIDs) name(id string) string {
	first, known := w.first[id]
	switch {
	case id == "":
		return id
	case w.process != "":
		return fmt.Sprintf("%s~%s.%d", id, w.process, w.generation)
	case known && first == w.generation:
		return id
	case known || w.full != 0 && w.full != w.generation:
		return fmt.Sprintf("%s~%d", id, w.generation)
	case len(w.first) == maxWireIDs:
		w.full = w.generation
	default:
		w.first[id] = w.generation
	}
	return id
}

// rename replaces the ids in an event with the ids that clients see.
func (w *wireIDs) rename(ev contracts.Event) {
	switch e := ev.(type) {
	case *contracts.ResponseStart:
		e.ResponseID = w.name(e.ResponseID)
	case *contracts.ResponseChunk:
		e.ResponseID = w.name(e.ResponseID)
	case *contracts.ResponseEnd:
		e.ResponseID = w.name(e.ResponseID)
	case *contracts.ToolCall:
		e.CallID = w.name(e.CallID)
	case *contracts.ToolStart:
		e.CallID = w.name(e.CallID)
	case *contracts.ToolOutput:
		e.CallID = w.name(e.CallID)
	case *contracts.ToolEnd:
		e.CallID = w.name(e.CallID)
	case *contracts.ClientToolRequest:
		e.CallID = w.name(e.CallID)
	case *contracts.ServerRequest:
		e.CallID, e.RequestID = w.name(e.CallID), w.name(e.RequestID)
	case *contracts.ServerRequestResolved:
		e.CallID, e.RequestID = w.name(e.CallID), w.name(e.RequestID)
	}
}
