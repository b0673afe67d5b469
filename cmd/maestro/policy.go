package main

import "github.com/seed-028515a8/maestro/contracts"

// A policy is what the command and --protocol-profile choose together, where
// flags do not say otherwise. It is chosen here and nowhere else.
//
//	                     serve, headless   hosted-runner   with --protocol-profile public
//	--connection-tokens  required          optional        the same
//	--drain-requests                       keep            cancel
//	start of the agent   in the journal    in the journal  in the state only, of a hosted-runner
//	newer fields         sent              sent            left out
//
// With --auth off connection tokens are optional everywhere.
type policy struct {
	profile       contracts.Profile
	hosted        bool // one session for a control plane: processes get only what they are known to need
	requireTokens bool // requests about a connection must present its secret
	drainCancels  bool // a drain cancels all questions
	quiet         bool // the start of the agent is not in the journal
}

func (s *settings) policy(hosted bool) policy {
	public := s.profile == string(contracts.ProfilePublic)
	p := policy{
		profile: contracts.Profile(s.profile), hosted: hosted,
		requireTokens: s.auth != "off" && !hosted, // clients of control planes are often made for servers without secrets
		drainCancels:  public, quiet: public && hosted,
	}
	if s.connectionTokens != "" {
		p.requireTokens = s.connectionTokens == "required"
	}
	if s.drainRequests != "" {
		p.drainCancels = s.drainRequests == "cancel"
	}
	return p
}
