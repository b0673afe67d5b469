package hub

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// The audit is a chain of records about questions, votes, answers, changes of the
// lease and drains. Records are parts of notes in the journal. A record has the hash
// of the one before, and the checkpoint has the hash of the newest, so a record cannot
// be changed, removed or inserted without a hash that does not fit. Whoever can write
// to the journal can replace the whole chain: compare its newest hash with a copy that
// is stored elsewhere.

// What an [AuditRecord] is about.
const (
	AuditAsked = "asked" // a question was shown
	AuditVoted = "voted" // an approval was counted, and more are needed
	AuditEnded = "ended" // a question ended
	AuditLease = "lease" // the lease moved
	AuditDrain = "drain" // a drain began
)

// An AuditRecord is one step of the audit. The fields after What are empty if they do
// not apply.
type AuditRecord struct {
	N        uint64    `json:"n"`                  // from 1
	Previous string    `json:"previous,omitempty"` // hash of the record before
	Time     time.Time `json:"time"`
	What     string    `json:"what"`

	RequestID   string                `json:"request_id,omitempty"`
	RequestType contracts.RequestType `json:"request_type,omitempty"`
	Tool        string                `json:"tool,omitempty"`
	Digest      string                `json:"digest,omitempty"` // see [contracts.RequestDigest]
	Echoed      bool                  `json:"echoed,omitempty"` // the answer repeated the digest
	Verdict     contracts.Verdict     `json:"verdict,omitempty"`
	ResolvedBy  contracts.Resolver    `json:"resolved_by,omitempty"`
	Generation  uint64                `json:"generation,omitempty"` // of the lease
	Reason      string                `json:"reason,omitempty"`     // of a drain

	// The sender of the answer, or the new holder of the lease.
	Principal  string `json:"principal,omitempty"`
	Name       string `json:"name,omitempty"`       // proven name of the principal
	Connection string `json:"connection,omitempty"` // empty for a request without one
	Credential string `json:"credential,omitempty"` // see [contracts.Principal]
}

// A savedAudit is a record in a note. The hash is the SHA-256 hash, in hex, of the
// bytes of the record.
type savedAudit struct {
	Record json.RawMessage `json:"record"`
	Hash   string          `json:"hash"`
}

// An auditHead is the newest record of the audit.
type auditHead struct {
	N    uint64 `json:"n"`
	Hash string `json:"hash"`
}

// A sender is the client that caused an audited step; nil means that no client did.
type sender struct {
	contracts.Principal
	connection string // id; empty without a connection
	echoed     bool   // the answer repeated the digest
}

func senderOf(c *connection) *sender {
	if c == nil {
		return nil
	}
	return &sender{Principal: c.principal, connection: c.id}
}

// audit adds a record to the chain and returns it for a note. It returns nil after the
// cursor is frozen, when notes are not written.
func (tx *tx) audit(r AuditRecord, by *sender) *savedAudit {
	if tx.life.frozen {
		return nil
	}
	head := &tx.log.audit
	r.N, r.Previous, r.Time = head.N+1, head.Hash, tx.now.UTC().Truncate(time.Millisecond)
	if by != nil {
		r.Principal, r.Name, r.Connection, r.Credential = by.ID, by.Name, by.connection, cmp.Or(by.Credential, by.ID)
		r.Echoed = by.echoed
	}
	record, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("hub: encode audit record: %v", err)) // every field can be encoded
	}
	*head = auditHead{N: r.N, Hash: hashOf(record)}
	tx.then(func(h *Hub) { h.logAudit(&r) })
	return &savedAudit{Record: record, Hash: head.Hash}
}

// logAudit writes a record to the log.
func (h *Hub) logAudit(r *AuditRecord) {
	facts := []any{}
	for _, f := range []struct{ key, value string }{
		{"request", r.RequestID}, {"type", string(r.RequestType)}, {"tool", r.Tool}, {"verdict", string(r.Verdict)},
		{"resolved_by", string(r.ResolvedBy)}, {"reason", r.Reason}, {"principal", r.Principal}, {"name", r.Name}, {"connection", r.Connection},
	} {
		if f.value != "" {
			facts = append(facts, f.key, f.value)
		}
	}
	what := auditWords[r.What]
	if r.What == AuditLease {
		facts = append(facts, "generation", r.Generation)
		if r.Connection == "" {
			what = "control released"
		}
	}
	h.logger.Info(what, facts...)
}

// auditWords are the messages of the log about audited steps.
var auditWords = map[string]string{
	AuditAsked: "question asked", AuditVoted: "vote counted", AuditEnded: "question ended", AuditLease: "control changed", AuditDrain: "drain began",
}

func hashOf(record []byte) string {
	sum := sha256.Sum256(record)
	return hex.EncodeToString(sum[:])
}

// aboutRequest returns a record about a request.
func aboutRequest(what string, req *contracts.ServerRequest, digest string) AuditRecord {
	return AuditRecord{What: what, RequestID: req.RequestID, RequestType: req.RequestType, Tool: req.Tool, Digest: digest}
}

// An AuditReader reads the audit from the entries of a journal and verifies the chain.
// Its zero value is ready to use.
type AuditReader struct {
	// Cut is the number of records that retention has removed before the first one.
	Cut uint64

	head  auditHead
	known bool // head is known: the next record must follow it
}

// Head returns the number and the hash of the newest record.
func (a *AuditReader) Head() (n uint64, hash string) { return a.head.N, a.head.Hash }

// Read returns the record in an entry, nil if there is none. why says what is wrong
// with the chain at the entry; it is empty if nothing is.
func (a *AuditReader) Read(e journal.Entry) (r *AuditRecord, why string, err error) {
	a.known = a.known || e.Cursor == 1 // nothing came before
	switch e.Kind {
	case journal.Checkpoint:
		var cp struct {
			Audit auditHead `json:"audit"`
		}
		if err := json.Unmarshal(e.Body, &cp); err != nil {
			return nil, "", err
		}
		if a.known && cp.Audit != a.head {
			why = fmt.Sprintf("the checkpoint expects record %d as the newest, found %d with another hash or number", cp.Audit.N, a.head.N)
		}
		if !a.known {
			a.Cut = cp.Audit.N
		}
		a.head, a.known = cp.Audit, true
		return nil, why, nil
	case journal.Note, journal.Joint:
		var n struct {
			Audit *savedAudit `json:"audit"`
		}
		text := e.Parts().Hidden
		if len(text) == 0 {
			return nil, "", nil
		}
		if err := json.Unmarshal(text, &n); err != nil || n.Audit == nil {
			return nil, "", err
		}
		return a.follow(n.Audit)
	}
	return nil, "", nil
}

// follow checks that a record continues the chain.
func (a *AuditReader) follow(saved *savedAudit) (*AuditRecord, string, error) {
	r := new(AuditRecord)
	if err := json.Unmarshal(saved.Record, r); err != nil {
		return nil, "", err
	}
	if !a.known && r.N > 1 {
		a.Cut, a.head, a.known = r.N-1, auditHead{r.N - 1, r.Previous}, true
	}
	var wrong []string
	if hashOf(saved.Record) != saved.Hash {
		wrong = append(wrong, "its hash is not that of its content")
	}
	if want := (auditHead{r.N - 1, r.Previous}); want != a.head {
		wrong = append(wrong, fmt.Sprintf("it does not follow record %d", a.head.N))
	}
	a.head, a.known = auditHead{r.N, saved.Hash}, true
	why := strings.Join(wrong, ", and ")
	if why != "" {
		why = fmt.Sprintf("record %d: %s", r.N, why)
	}
	return r, why, nil
}

// String returns the record in one line: what happened and who did it, and then the ids.
func (r *AuditRecord) String() string {
	var line strings.Builder
	fmt.Fprintf(&line, "%d %s %s", r.N, r.Time.Format("2006-01-02T15:04:05.000Z"), r.What)
	if r.RequestType != "" {
		fmt.Fprintf(&line, " %s %q", r.RequestType, r.Tool)
	}
	if r.Verdict != "" {
		fmt.Fprintf(&line, " %s", r.Verdict)
	}
	who := cmp.Or(r.Name, r.Principal)
	switch {
	case r.What == AuditLease && who == "":
		line.WriteString(" to nobody")
	case r.What == AuditLease:
		fmt.Fprintf(&line, " to %q", who)
	case who != "":
		fmt.Fprintf(&line, " by %q", who)
	case r.ResolvedBy != "":
		fmt.Fprintf(&line, " by %s", r.ResolvedBy)
	}
	if r.What == AuditEnded && r.Principal != "" && !r.Echoed {
		line.WriteString(" without its digest")
	}
	principal := r.Principal
	if principal == r.Credential {
		principal = ""
	}
	for _, field := range []struct{ name, value string }{
		{"reason", r.Reason}, {"request", r.RequestID}, {"digest", r.Digest},
		{"principal", principal}, {"connection", r.Connection}, {"credential", r.Credential},
	} {
		if field.value != "" {
			fmt.Fprintf(&line, " %s=%q", field.name, field.value)
		}
	}
	if r.What == AuditLease {
		fmt.Fprintf(&line, " generation=%d", r.Generation)
	}
	return line.String()
}
