package shape

import (
	"reflect"

	"github.com/seed-028515a8/maestro/contracts"
)

// AdditiveRule is the rule of a key that the published schemas do not list.
const AdditiveRule = "A47:additive"

// What the published schemas have otherwise than the types of package contracts.
// It counts for [contracts.ProfilePublic].
var (
	// newer are the keys that the published schemas do not have.
	newer = map[reflect.Type][]string{
		reflect.TypeFor[contracts.Ready]():   {"executor_type"},
		reflect.TypeFor[contracts.HelloOK](): {"server_capabilities"},
	}

	// optional are the keys that a server may leave out, with the rule that asks
	// for them all the same.
	optional = map[reflect.Type]map[string]string{
		reflect.TypeFor[contracts.State]():                {"pending_requests": "R73:list"},
		reflect.TypeFor[contracts.UtilityCommandExited](): {"exit_code": "0.2:both", "signal": "0.2:both"},
		reflect.TypeFor[Refusal]():                        {"error_type": "A73", "code": "A73", "retryable": "1.4:retryable", "details": "1.4:details"},
		reflect.TypeFor[Readiness]():                      {"ok": "1.13:ready", "ready": "1.13:ready", "draining": "1.13:ready"},
		reflect.TypeFor[contracts.MessageAnswer](): {"ok": "1.12:answer", "accepted": "1.12:answer", "cursor": "1.12:answer", "execution": "1.12:answer",
			"published_messages": "1.12:answer", "message": "1.12:answer", "snapshot": "1.12:answer"},
	}

	// exact are the shapes whose keys a published rule lists as all there are.
	exact = map[reflect.Type]bool{reflect.TypeFor[contracts.DisconnectAnswer](): true}

	// unclosed are the bodies that no published schema closes: they may hold more
	// than is known, and null in optional keys. Snapshots in them are closed.
	unclosed = map[reflect.Type]bool{
		reflect.TypeFor[Refusal](): true, reflect.TypeFor[Readiness](): true, reflect.TypeFor[Liveness](): true, reflect.TypeFor[Drain](): true,
		reflect.TypeFor[contracts.ConnectionAnswer](): true, reflect.TypeFor[contracts.MessageAnswer](): true, reflect.TypeFor[contracts.SuccessAnswer](): true,
	}
)
