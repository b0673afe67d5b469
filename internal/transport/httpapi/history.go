package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// history returns the endpoint that reads pages of a kind of history.
func (h *Handler) history(kind contracts.HistoryKind) endpoint {
	return func(w http.ResponseWriter, r *http.Request, by contracts.Caller) (any, error) {
		req, err := historyRequest(r, kind)
		if err != nil {
			return nil, err
		}
		s, err := h.find(r, by)
		if err == nil {
			err = connlimit.ReserveAnswer(r, contracts.MaxHistoryBytes)
		}
		if err != nil {
			return nil, err
		}
		page, err := s.History(r.Context(), req, by)
		if err != nil {
			return nil, err
		}
		text, err := contracts.EncodeBody(page)
		if err != nil {
			return nil, err
		}
		connlimit.CountAnswer(r, len(text))
		httperr.WriteJSON(w, http.StatusOK, text)
		return nil, nil
	}
}

func historyRequest(r *http.Request, kind contracts.HistoryKind) (*contracts.HistoryRequest, error) {
	q, err := readParams(r)
	if err != nil {
		return nil, err
	}
	req := &contracts.HistoryRequest{
		Kind: kind, Limit: q.integer("limit"), Bytes: q.integer("bytes"), Turns: q.turns(), Query: q.text("q"),
	}
	before := q.integer("before")
	if before < 0 {
		q.refuse("the before must not be negative")
	}
	req.Before = uint64(before)
	req.Full, req.Pieces = q.flag("full"), q.flag("pieces")
	return req, q.err
}

// flag returns whether a parameter is 1. It is 0 if it is absent.
func (q *params) flag(name string) bool {
	switch q.text(name) {
	case "", "0":
		return false
	case "1":
		return true
	}
	q.refuse("the " + name + " must be 0 or 1")
	return false
}

// params are the parameters of a query, each of which may be there once. Empty ones
// count as absent.
type params struct {
	values url.Values
	err    error // the first refusal
}

func readParams(r *http.Request) (*params, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("malformed query")
	}
	return &params{values: values}, nil
}

func (q *params) refuse(text string) {
	if q.err == nil {
		q.err = badRequest(text)
	}
}

func (q *params) text(name string) string {
	if len(q.values[name]) > 1 {
		q.refuse("the parameter " + name + " is there more than once")
	}
	return strings.Clone(q.values.Get(name)) // a copy, so that the request can be freed
}

// integer returns the value of a parameter, or 0 if it is absent.
func (q *params) integer(name string) int64 {
	text := q.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		q.refuse("the " + name + " must be an integer")
	}
	return n
}

// turns returns how many turns of history are requested, or 0.
func (q *params) turns() int64 {
	n := q.integer("turns")
	if n < 0 || n > contracts.MaxHistoryTurns {
		q.refuse(fmt.Sprintf("turns must be 1 to %d", contracts.MaxHistoryTurns))
	}
	return n
}
