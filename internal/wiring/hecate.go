package wiring

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/proc"
	"github.com/seed-028515a8/maestro/internal/transport/auth"
	"github.com/seed-028515a8/maestro/internal/transport/hecate"
	"github.com/seed-028515a8/maestro/internal/transport/httpapi"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
)

// A source is a hub as a log of Hecate events follows it.
type source struct{ *hub.Hub }

func (s source) Follow(epoch string, cursor uint64) hecate.Follower {
	return s.Hub.Follow(epoch, cursor)
}

// serveHecate adds the routes of the logs of Hecate events.
func (v *Server) serveHecate(mux *http.ServeMux, g *auth.Authenticator, streams *sse.Streams, limiter *ratelimit.Limiter) (err error) {
	m := v.Sessions
	translate := v.opts.Hecate
	translate.LeaseTTL = cmp.Or(m.opts.Session.LeaseTTL, contracts.DefaultLeaseTTL)
	translate.Redact = redactor(os.Environ(), v.opts.Network.Auth.Token)
	v.hecate, err = hecate.New(hecate.Options{
		Translate: translate, Dir: m.scopeDir, Stored: m.kept.stored, RetainBytes: m.opts.RetainBytes, RetainAge: m.opts.RetainAge,
		Authorize: g.Authorize, Alive: g.Alive, Attach: limiter.Attach, Request: limiter.Request, Streams: streams, Heartbeat: m.opts.Session.HeartbeatInterval, Log: m.log,
		Find: func(ctx context.Context, p contracts.Principal, session string) (hecate.Source, error) {
			h, _, err := v.Find(ctx, httpapi.Wanted{ID: session, Principal: p})
			return source{h}, err
		},
	})
	if err == nil {
		v.hecate.Routes(mux)
	}
	return err
}

// refuse answers a request with the error body of the protocol that its path belongs to.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if hecate.Serves(r.URL.Path) {
		hecate.WriteError(w, err)
		return
	}
	httperr.Write(w, err)
}

// minSecret is the length from which the value of a variable is hidden. Shorter ones are
// too often part of other words.
const minSecret = 8

// redactor returns the function that hides credentials: what looks like one, and the
// values of the server's own variables and its token.
func redactor(env []string, token string) func(string) (string, bool) {
	shown := proc.Environ(env, false, nil)
	var secrets []string
	for _, entry := range env {
		if _, value, _ := strings.Cut(entry, "="); !slices.Contains(shown, entry) && len(value) >= minSecret {
			secrets = append(secrets, value, mask.Mark)
		}
	}
	if token != "" {
		secrets = append(secrets, token, mask.Mark)
	}
	known := strings.NewReplacer(secrets...)
	return func(text string) (string, bool) {
		clean := mask.Text(known.Replace(text))
		return clean, clean != text
	}
}
