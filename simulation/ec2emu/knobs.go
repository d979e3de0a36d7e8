package ec2emu

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// Knobs configure the endpoint, as opposed to the world. The zero value answers every
// call at once.
type Knobs struct {
	// Latency is how long a call takes, by action; "*" means all others. Half of it
	// passes before the call is executed, and half after, so that a client that leaves
	// does not know whether its call was executed.
	Latency map[string]world.Takes `json:"latency,omitempty"`
	// Throttling is the token buckets.
	Throttling Throttling `json:"throttling"`
	// Auth configures the checks of the caller.
	Auth Auth `json:"auth"`
	// Metadata is the instance metadata service.
	Metadata Metadata `json:"metadata"`
}

// Auth rejects calls by their caller. It does not verify signatures.
type Auth struct {
	// Required rejects calls that are not signed with signature version 4
	// (MissingAuthenticationToken 400 or IncompleteSignature 400).
	Required bool `json:"required,omitempty"`
	// Region, if set, must be that of the signatures (AuthFailure 401).
	Region string `json:"region,omitempty"`
	// AccessKeys, if set, are the only valid ones (AuthFailure 401).
	AccessKeys []string `json:"accessKeys,omitempty"`
	// Expired rejects every call with RequestExpired (400), as for expired credentials.
	Expired bool `json:"expired,omitempty"`
	// Denied are actions that get UnauthorizedOperation (403); "*" means all.
	Denied []string `json:"denied,omitempty"`
	// Skew, if above 0, is the largest difference of a signature's time (RequestExpired,
	// 400).
	Skew world.Span `json:"skew,omitempty"`
}

// Metadata configures the instance metadata service.
type Metadata struct {
	// Disabled answers 403 to every request, as for an instance whose endpoint is off.
	Disabled bool `json:"disabled,omitempty"`
	// TokensRequired rejects IMDSv1: calls without a token get 401.
	TokensRequired bool `json:"tokensRequired,omitempty"`
	// HopLimit emulates a hop limit that is too small for token requests: hang (no
	// answer), refuse (the connection is closed), or empty.
	HopLimit string `json:"hopLimit,omitempty"`
	// Latency is how long each answer takes.
	Latency world.Takes `json:"latency,omitzero"`
}

// Values of HopLimit.
const (
	HopHang   = "hang"
	HopRefuse = "refuse"
)

func (k Knobs) validate() error {
	for action := range k.Latency {
		if _, known := actions()[action]; !known && action != every {
			return fmt.Errorf("latency of %s: unknown action", action)
		}
	}
	switch k.Metadata.HopLimit {
	case "", HopHang, HopRefuse:
	default:
		return fmt.Errorf("metadata hop limit %q: want %s, %s or an empty one", k.Metadata.HopLimit, HopHang, HopRefuse)
	}
	return k.Throttling.validate()
}

// every means all actions that are not named.
const every = "*"

// latency is that of an action.
func (k Knobs) latency(action string) world.Takes {
	if l, ok := k.Latency[action]; ok {
		return l
	}
	return k.Latency[every]
}
