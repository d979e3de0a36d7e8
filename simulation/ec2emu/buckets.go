package ec2emu

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Bucket is a token bucket: each call takes a token, and Refill tokens a second are added
// up to Burst. A Burst of 0 means no limit.
type Bucket struct {
	Burst  float64 `json:"burst"`
	Refill float64 `json:"refill"`
}

// Throttling configures the token buckets. A call without a token gets
// RequestLimitExceeded and HTTP 503, or Code and Status if they are set.
type Throttling struct {
	// Preset is unlimited (also when empty), default (EC2's published buckets), tight (a
	// tenth of them) or storm (20 % of them, as if another client took the rest).
	Preset string `json:"preset"`
	// Mode is per-api (also when empty) or shared: one bucket for all changing actions,
	// 200 tokens and 10 per second, and one for all describes, 100 and 20, as in an older
	// edition of EC2's documentation.
	Mode string `json:"mode"`
	// Buckets replace the preset's by name: an action, or Describe….unfiltered
	// for calls of it without filter and page size.
	Buckets map[string]Bucket `json:"buckets,omitempty"`
	// IDsAreFilters makes a describe by IDs count as filtered. EC2's documentation does
	// not define that.
	IDsAreFilters bool   `json:"idsAreFilters,omitempty"`
	Code          string `json:"code,omitempty"`
	Status        int    `json:"status,omitempty"`
}

// Presets of Throttling.
const (
	Unlimited = "unlimited"
	Default   = "default"
	Tight     = "tight"
	Storm     = "storm"
)

// Modes of Throttling.
const (
	PerAPI = "per-api"
	Shared = "shared"
)

// unfiltered ends the name of the smaller bucket of a describe.
const unfiltered = ".unfiltered"

func (t Throttling) validate() error {
	switch t.Preset {
	case "", Unlimited, Default, Tight, Storm:
	default:
		return fmt.Errorf("throttling preset %q: want %s, %s, %s or %s", t.Preset, Unlimited, Default, Tight, Storm)
	}
	switch t.Mode {
	case "", PerAPI, Shared:
	default:
		return fmt.Errorf("throttling mode %q: want %s or %s", t.Mode, PerAPI, Shared)
	}
	for name, b := range t.Buckets {
		if b.Burst < 0 || b.Refill < 0 {
			return fmt.Errorf("bucket %s: burst and refill must not be negative", name)
		}
	}
	return nil
}

// bucket is the bucket of a call, by name; ok is false if it has none. The numbers are
// those of the EC2 API reference, "Request throttling for the Amazon EC2 API".
func (t Throttling) bucket(action string, isUnfiltered bool) (name string, b Bucket, ok bool) {
	name = action
	if isUnfiltered && hasSmallerBucket(action) {
		name += unfiltered
	}
	if own, set := t.Buckets[name]; set {
		return name, own, own.Burst > 0
	}
	scale := 1.0
	switch t.Preset {
	case "", Unlimited:
		return "", Bucket{}, false
	case Tight:
		scale = 0.1
	case Storm:
		scale = 0.2
	}
	if t.Mode == Shared {
		name, b = sharedBucket(action)
	} else {
		b = publishedBucket(name)
	}
	return name, Bucket{Burst: max(1, b.Burst*scale), Refill: b.Refill * scale}, true
}

func publishedBucket(name string) Bucket {
	switch name {
	case "CreateVolume", "DeleteVolume", "CreateSnapshot", "CreateSnapshots", "DeleteSnapshot":
		return Bucket{Burst: 100, Refill: 5}
	case "CreateTags", "DeleteTags":
		return Bucket{Burst: 100, Refill: 10}
	}
	switch {
	case strings.HasSuffix(name, unfiltered):
		return Bucket{Burst: 50, Refill: 10}
	case describes(name):
		return Bucket{Burst: 100, Refill: 20}
	default:
		return Bucket{Burst: 50, Refill: 5}
	}
}

func sharedBucket(action string) (string, Bucket) {
	if describes(action) {
		return "describing", Bucket{Burst: 100, Refill: 20}
	}
	return "changing", Bucket{Burst: 200, Refill: 10}
}

func describes(action string) bool {
	return strings.HasPrefix(action, "Describe")
}

func hasSmallerBucket(action string) bool {
	switch action {
	case "DescribeInstances", "DescribeSnapshots", "DescribeVolumes":
		return true
	}
	return false
}

// buckets are the buckets in use. A bucket starts full.
type buckets struct {
	mu    sync.Mutex
	state map[string]*bucketState
}

type bucketState struct {
	tokens float64
	at     time.Time
}

// take takes a token from the named bucket at now; false if it has none.
func (b *buckets) take(name string, limit Bucket, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.state[name]
	if state == nil {
		if b.state == nil {
			b.state = map[string]*bucketState{}
		}
		state = &bucketState{tokens: limit.Burst, at: now}
		b.state[name] = state
	}
	if passed := now.Sub(state.at); passed > 0 {
		state.tokens += passed.Seconds() * limit.Refill
		state.at = now
	}
	state.tokens = min(state.tokens, limit.Burst)
	if state.tokens < 1 {
		return false
	}
	state.tokens--
	return true
}

// fill makes all buckets full.
func (b *buckets) fill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.state)
}
