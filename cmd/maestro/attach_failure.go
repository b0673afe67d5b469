package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/show"
)

// explain returns an error of the server at host in words that say what to do.
func (f *attachFlags) explain(err error, host, tokenFile string) error {
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		text := fmt.Sprintf("%s has a certificate that this machine does not accept: %s", host, bad.Err)
		if _, unknown := errors.AsType[x509.UnknownAuthorityError](bad.Err); unknown {
			text += "; trust its authority with SSL_CERT_FILE=FILE, where FILE has the authority's certificate (PEM)"
		}
		return errors.New(text)
	}
	e, ok := errors.AsType[*client.CloseError](err)
	if !ok {
		return err
	}
	if network, ok := errors.AsType[*net.OpError](err); ok && network.Op == "dial" {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("nothing listens at %s: is `maestro serve` running?", host)
		}
		return fmt.Errorf("nothing answers at %s (%s): is `maestro serve` running?", host, innermost(network))
	}
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s speaks http, not https: want http://%s", host, host)
	case e.Reason == "" && e.Status != 0 && e.Status < http.StatusInternalServerError:
		return fmt.Errorf("%s is no maestro server: it answers %d %s", host, e.Status, http.StatusText(e.Status))
	case e.Reason == contracts.CodeUnauthenticated && f.share != "":
		return fmt.Errorf("%s does not accept the link: it has expired or was revoked", host)
	case e.Reason == contracts.CodeUnauthenticated && tokenFile != "":
		return fmt.Errorf("%s does not accept the token in %s: %s", host, tokenFile, e.Message)
	case e.Reason == contracts.CodeUnauthenticated:
		return fmt.Errorf("%s needs a token: name its file with --token-file, or run the command as the user of the server", host)
	case e.Code == 4404 && e.Reason == contracts.CodeNotFound && e.Message == "route not found":
		return fmt.Errorf("%s answers, but not at that path: want http://HOST:PORT, and --session ID for one of its sessions", host)
	case e.Code == 4404 && f.session != "" && !f.create:
		return fmt.Errorf("session %q not found: --create creates it", f.session)
	case e.Reason == contracts.CodeAccessDenied && e.Message == onlyApproves.Error():
		return fmt.Errorf("%s: attach with --approve", e.Message)
	case e.Reason == contracts.CodeAccessDenied && !f.view && !f.create:
		return fmt.Errorf("%s: attach with --view", e.Message)
	}
	return err
}

// lower sets the flag of the role of a link, if err refuses a role that the link does not
// allow. The user needs to know the link only.
func (f *attachFlags) lower(err error) bool {
	e, ok := errors.AsType[*client.CloseError](err)
	if f.share == "" || !ok || f.view || f.approve || f.take {
		return false
	}
	f.approve, f.view = e.Message == onlyApproves.Error(), e.Message == onlyViews.Error()
	return f.approve || f.view
}

// onlyApproves and onlyViews are the refusals of a controller whose credential is an
// approver's or a viewer's.
var (
	onlyApproves = contracts.Principal{Role: contracts.RoleApprover}.CheckRole(contracts.RoleController)
	onlyViews    = contracts.Principal{Role: contracts.RoleViewer}.CheckRole(contracts.RoleController)
)

// inWords returns a refusal in words.
func inWords(err error) string {
	refusal, _ := errors.AsType[*contracts.Error](err)
	why, _ := errors.AsType[*client.CloseError](err)
	switch {
	case refusal == nil && why != nil && why.Status == 0 && why.Err != nil:
		return "no answer from the server: " + show.OneLine(innermost(why.Err), show.MaxArgs)
	case refusal == nil:
	case refusal.Code == contracts.CodeRuntimeBusy:
		return "the agent is at work on a prompt: /queue sends yours after it, /interrupt ends it"
	case refusal.Code == contracts.CodeRequestNotFound:
		how := strings.ReplaceAll(refusal.Metadata["resolution"], "_", " ")
		return "the question has ended already" + colon(how)
	case refusal.Code == contracts.CodeAlreadyVoted:
		return "you have approved this already: somebody else must too"
	case why != nil && refusal.Code == contracts.CodeNotFound:
		return "this server does not offer that"
	case why != nil:
		return show.OneLine(refusal.Message, show.MaxArgs)
	}
	return show.OneLine(err.Error(), show.MaxArgs)
}

// innermost returns the text of the innermost error.
func innermost(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Err
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err.Error()
}

// checkToken checks that a token file can be read and is not empty.
func checkToken(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return fmt.Errorf("token file %s is empty", path)
	}
	return nil
}
