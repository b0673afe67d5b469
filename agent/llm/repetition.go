package llm

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/seed-028515a8/maestro/agent/llm/tool"
)

// maxRepeats is how often the same call may have the same result in a row before
// somebody is asked.
const maxRepeats = 3

// A repetition counts how often the last call was made in a row, to the same
// effect.
type repetition struct {
	call   [sha256.Size]byte
	result [sha256.Size]byte
	count  int
}

// times returns how often the call has just been made.
func (r *repetition) times(c *call) int {
	if r.count > 0 && r.call == callSum(c) {
		return r.count
	}
	return 0
}

// note counts a call that has ended.
func (r *repetition) note(c *call, result tool.Result) {
	text, err := json.Marshal(result)
	if err != nil {
		return // not reached: a result is text and bytes
	}
	this := repetition{callSum(c), sha256.Sum256(text), 1}
	if r.count > 0 && r.call == this.call && r.result == this.result {
		this.count = r.count + 1
	}
	*r = this
}

func callSum(c *call) [sha256.Size]byte {
	return sha256.Sum256([]byte(c.Tool + "\x00" + c.problem + "\x00" + string(c.Args)))
}
