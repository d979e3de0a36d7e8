package ec2emu

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// Knobs are how the endpoint treats calls, apart from what the world does with
// them. The zero value answers everything at once.
type Knobs struct {
	// Latency is how long a call takes, by action; "*" is all others. Half of
	// it passes before the call is executed, half after: a client that leaves
	// in between does not know which half it was.
	Latency map[string]world.Takes `json:"latency,omitempty"`
	// Throttling is the token buckets.
	Throttling Throttling `json:"throttling"`
	// Auth is what is checked before the parameters of a call.
	Auth Auth `json:"auth"`
	// Metadata is the instance metadata service.
	Metadata Metadata `json:"metadata"`
}

// Auth refuses calls for who makes them. No signature is ever computed.
type Auth struct {
	// Required refuses calls that are not signed with signature version 4 (MissingAuthenticationToken 400 or
	// IncompleteSignature 400).
	Required bool `json:"required,omitempty"`
	// Region, when set, is the only one that signatures may be for (AuthFailure 401).
	Region string `json:"region,omitempty"`
	// AccessKeys, when there are any, are all that are known (AuthFailure 401).
	AccessKeys []string `json:"accessKeys,omitempty"`
	// Expired refuses everything with RequestExpired (400), as for credentials
	// whose time is over.
	Expired bool `json:"expired,omitempty"`
	// Denied are actions that get UnauthorizedOperation (403); "*" is all.
	Denied []string `json:"denied,omitempty"`
	// Skew, when above 0, refuses a signature whose time is further off
	// (RequestExpired, 400).
	Skew world.Span `json:"skew,omitempty"`
}

// Metadata is how the instance metadata service behaves.
type Metadata struct {
	// Disabled answers 403 to everything, as an instance whose endpoint is off.
	Disabled bool `json:"disabled,omitempty"`
	// TokensRequired refuses IMDSv1: calls without a token get 401.
	TokensRequired bool `json:"tokensRequired,omitempty"`
	// HopLimit is what happens to token requests from behind a hop too many:
	// hang (no answer ever comes), refuse (the connection is closed) or empty.
	HopLimit string `json:"hopLimit,omitempty"`
	// Latency is how long each answer takes.
	Latency world.Takes `json:"latency,omitzero"`
}

// Ways a hop limit shows.
const (
	HopHang   = "hang"
	HopRefuse = "refuse"
)

func (k Knobs) validate() error {
	for action := range k.Latency {
		if _, known := actions()[action]; !known && action != every {
			return fmt.Errorf("latency of %s: there is no such action", action)
		}
	}
	switch k.Metadata.HopLimit {
	case "", HopHang, HopRefuse:
	default:
		return fmt.Errorf("metadata hop limit %q: want %s, %s or nothing", k.Metadata.HopLimit, HopHang, HopRefuse)
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
