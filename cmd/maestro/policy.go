package main

import "github.com/seed-028515a8/maestro/contracts"

// A policy has the settings that depend on the command and on --protocol-profile.
// Flags override them:
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
	hosted        bool // one session for a control plane: processes get an allow-list of the environment
	requireTokens bool // requests about a connection must present its secret
	drainCancels  bool // a drain cancels all questions
	quiet         bool // the start of the agent is not in the journal
}

func (s *settings) policy(hosted bool) policy {
	public := s.profile == string(contracts.ProfilePublic)
	p := policy{
		profile: contracts.Profile(s.profile), hosted: hosted,
		requireTokens: s.auth != "off" && !hosted, // many clients of control planes were made for servers without connection tokens
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
