package main

import "github.com/seed-028515a8/maestro/contracts"

// setPolicy sets the options that depend on the command and on --protocol-profile.
// Flags override them:
//
//	                     serve, headless   hosted-runner   with --protocol-profile public
//	--connection-tokens  required          optional        the same
//	--drain-requests                       keep            cancel
//	start of the agent   in the journal    in the journal  in the state only, of a hosted-runner
//	newer fields         sent              sent            left out
//
// With --auth off connection tokens are optional everywhere.
func (s *settings) setPolicy() {
	profile := contracts.Profile(s.profile)
	public := profile == contracts.ProfilePublic
	s.session.Profile, s.runtime.Profile = profile, profile
	s.tools.Hosted, s.runtime.Hosted = s.hosted, s.hosted
	s.session.Quiet = public && s.hosted
	s.session.RequireTokens = s.auth != "off" && !s.hosted // many clients of control planes were made for servers without connection tokens
	if s.connectionTokens != "" {
		s.session.RequireTokens = s.connectionTokens == "required"
	}
	s.session.DrainCancels = public
	if s.drainRequests != "" {
		s.session.DrainCancels = s.drainRequests == "cancel"
	}
}
