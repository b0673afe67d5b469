package auth

import (
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
)

const maxRequestBody = 4 << 10 // bytes

// route serves requests with a function that returns a body type of package
// contracts, or an error.
func (g *Authenticator) route(serve func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var text []byte
		answer, err := serve(w, r)
		if err == nil {
			text, err = contracts.EncodeBody(answer)
		}
		if err != nil {
			g.fail(w, r, err)
			return
		}
		httperr.WriteJSON(w, http.StatusOK, append(text, '\n'))
	}
}

// fail answers with err. It logs errors that are not refusals.
func (g *Authenticator) fail(w http.ResponseWriter, r *http.Request, err error) {
	if _, refused := errors.AsType[*contracts.Error](err); !refused {
		g.opts.Log.Error("request failed", "route", r.Pattern, "error", err)
	}
	httperr.Write(w, err)
}

// authorizeOwnRoute is Authorize for a route of this package. It also counts
// the request.
func (g *Authenticator) authorizeOwnRoute(w http.ResponseWriter, r *http.Request) (contracts.Principal, error) {
	p, err := g.Authorize(r)
	if err == nil {
		err = ratelimit.Refusal(w.Header(), g.opts.RateLimit.Request(p.ID))
	}
	return p, err
}

// readBody decodes the request's body, which may be empty, into a body type.
func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := connlimit.ReadBody(w, r, maxRequestBody)
	if err != nil || len(body) == 0 {
		return err
	}
	// A form on a foreign page cannot send this content type.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return badRequest("the content type must be application/json")
	}
	return new(contracts.Decoder).Body(body, into)
}

// timestamp formats a time as on the wire.
func timestamp(t time.Time) string {
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
