package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// endTime bounds how long the sessions of a scenario may take to end after the run
// was cancelled. Otherwise they have the scenario's timeout.
const endTime = 5 * time.Second

// endTries is how often a scenario tries to end a session.
const endTries = 3

// made notes a session that the scenario may have made and therefore ends.
func (s *Session) made(id string) {
	if id != "" && !slices.Contains(s.sessions, id) {
		s.sessions = append(s.sessions, id)
	}
}

// endSessions ends with shutdown what the scenario made at a server over the network,
// once its clients are gone, also when the run was cancelled. It returns how many
// sessions may be left. A hosted runner ends with its session.
func (s *Session) endSessions() (left int) {
	if len(s.runners) > 0 {
		return 0
	}
	limit := s.config.Timeout
	if s.run.Err() != nil {
		limit = endTime
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.run), limit)
	defer cancel()
	end := s.endOnSocket
	if s.wire != nil {
		end = s.endOverHTTP
		defer s.wire.close()
	}
	for _, id := range s.sessions {
		ended := false
		for tries := 0; !ended && tries < endTries; tries++ { // a busy machine can cost a connection
			ended = end(ctx, id)
		}
		if !ended {
			left++
		}
	}
	return left
}

// endOnSocket reports whether a session is over.
func (s *Session) endOnSocket(ctx context.Context, id string) bool {
	how := entry{session: id, role: contracts.RoleController, take: "1"}
	link, err := dialSocket(ctx, dialOptions{base: s.base(), token: s.credential(), subprotocol: contracts.Subprotocol, query: how.query(s)})
	if refused, ok := errors.AsType[*Refused](err); ok && refused.Status == http.StatusTooManyRequests {
		select {
		case <-time.After(time.Second):
			return s.endOnSocket(ctx, id)
		case <-ctx.Done():
		}
		return false
	} else if err != nil {
		return ok && refused.Status == http.StatusNotFound
	}
	defer func() { _ = link.Close() }() // the server closes it if all goes well
	for _, cmd := range []contracts.Command{s.hello(contracts.RoleController), &contracts.Shutdown{}} {
		if link.Send(ctx, encodeCommand(cmd)) != nil {
			break // reading tells why
		}
	}
	for err == nil {
		_, err = link.Recv(ctx)
	}
	closed, ok := errors.AsType[*Closed](err)
	return ok && (closed.Code == 1000 || contracts.Code(closed.Reason) == contracts.CodeStaleSession)
}

// endOverHTTP reports whether a session is over.
func (s *Session) endOverHTTP(ctx context.Context, id string) bool {
	c := s.caller("end", contracts.RoleController)
	body := encode(with(c.introduction(), fields{"sessionId": id, "takeControl": true}))
	a, err := s.send(ctx, request{who: c.name, method: http.MethodPost, path: connectionsPath, body: body})
	if err != nil || a.Status != http.StatusOK {
		return err == nil && a.Status == http.StatusNotFound
	}
	var got struct {
		Connection string `json:"connection_id"`
	}
	if json.Unmarshal(a.Raw, &got) != nil {
		return false
	}
	c.connection, c.token = got.Connection, a.Header.Get(tokenHeader)
	a, err = s.send(ctx, request{who: c.name, method: http.MethodPost, path: routeOf(id, "messages"), header: c.identity(), body: encodeCommand(&contracts.Shutdown{})})
	return err == nil && (a.Status == http.StatusOK || a.Status == http.StatusNotFound)
}
