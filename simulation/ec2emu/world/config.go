package world

import (
	"log/slog"
	"time"
)

// Config configures a World. The knobs may be changed while it runs.
type Config struct {
	// Knobs is Instant() when all times are 0; see the presets.
	Knobs Knobs
	// Region and AccountID are us-west-2 and 123456789012 when empty.
	Region, AccountID string
	// Zones are three of the region when empty.
	Zones []Zone
	// InstanceTypes are added to the built-in ones, or replace them by name.
	InstanceTypes []InstanceType
	// Seed makes IDs, times and chances repeatable.
	Seed uint64
	// Clock is the machine's when nil.
	Clock Clock
	// Devices has the data and block devices of volumes; nil means none.
	Devices Devices
	// StateDir has the file with the state of the world, which survives a restart; empty
	// means none. No other process may use it meanwhile.
	StateDir string
	// Logger gets the errors that are not returned to a caller; nil discards them.
	Logger *slog.Logger
}

// Zone is an availability zone.
type Zone struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	// State is available when empty.
	State string `json:"state,omitempty"`
	// Type is availability-zone when empty; local-zone has a Parent.
	Type   string `json:"type,omitempty"`
	Parent string `json:"parent,omitempty"`
	// NotOptedIn zones show only with AllAvailabilityZones and take no volumes.
	NotOptedIn bool `json:"notOptedIn,omitempty"`
	// Limits replaces the limits of volume types in this zone, for zones with the limits
	// from before autumn 2025.
	Limits map[string]TypeLimits `json:"limits,omitempty"`
}

// Knobs configure behaviour of EC2 that differs by account, time or chance, and behaviour
// that no source defines. Each zero value is the simplest behaviour.
type Knobs struct {
	Times       Times       `json:"times"`
	Consistency Consistency `json:"consistency"`
	Tokens      TokenKnobs  `json:"tokens"`
	Quotas      Quotas      `json:"quotas"`
	Attach      AttachKnobs `json:"attach"`
	Snapshots   SnapKnobs   `json:"snapshots"`
	Encryption  Encryption  `json:"encryption"`
	// Cooldown is the rule between modifications of one volume: CooldownFour
	// (default), CooldownSixHours or CooldownOff.
	Cooldown string `json:"cooldown,omitempty"`
	// FullZones lists zones that have no room: InsufficientVolumeCapacity.
	FullZones []string `json:"fullZones,omitempty"`
	// Retain keeps deleted volumes as a Recycle Bin rule does: EC2 does not show them any
	// more, World.Retained does.
	Retain bool `json:"retain,omitempty"`
	// DefaultPage is the number of results of a describe without MaxResults; 0 means all.
	DefaultPage int `json:"defaultPage,omitempty"`
}

// Rules for the time between modifications of a volume.
const (
	// CooldownFour: four modifications in any 24 hours, each after the one
	// before is completed (EC2 since 2026).
	CooldownFour = "four-per-day"
	// CooldownSixHours: six hours after the beginning of the last (EC2 before 2026).
	CooldownSixHours = "six-hours"
	// CooldownOff: any time, except while another is under way.
	CooldownOff = "off"
)

// Times is how long each transition takes, apart from the call that begins it.
type Times struct {
	Create     Takes `json:"create"`     // volume: creating to available
	Delete     Takes `json:"delete"`     // volume: deleting to gone
	Attach     Takes `json:"attach"`     // attaching to attached
	Detach     Takes `json:"detach"`     // detaching to gone
	Modify     Takes `json:"modify"`     // modifying to optimizing
	Optimize   Takes `json:"optimize"`   // optimizing to completed
	Snapshot   Takes `json:"snapshot"`   // pending to completed
	Initialize Takes `json:"initialize"` // a restored volume, until all its data is there
	Start      Takes `json:"start"`      // instance: pending to running
	Stop       Takes `json:"stop"`       // instance: stopping to stopped
	Terminate  Takes `json:"terminate"`  // instance: shutting-down to terminated
	Forget     Takes `json:"forget"`     // instance: terminated to unknown
	Enable     Takes `json:"enable"`     // fast restore: enabling to optimizing, and disabling to disabled
	Warm       Takes `json:"warm"`       // fast restore: optimizing to enabled
	// BusyRetry is the interval at which a device in use is checked; 200 ms when zero.
	BusyRetry Span `json:"busyRetry"`
}

// Consistency configures how describes lag.
type Consistency struct {
	// Visible is how long a new volume, snapshot or modification is unknown to describes.
	Visible Takes `json:"visible"`
	// Tags is how much longer filters by tag do not find it.
	Tags Takes `json:"tags"`
	// StaleOneIn makes one in so many describes answer with the previous state of each
	// resource; 0 means none. It applies for StaleFor after a change, 5 s when 0.
	StaleOneIn int  `json:"staleOneIn,omitempty"`
	StaleFor   Span `json:"staleFor"`
	// Actions makes changing actions fail too for a resource that is not visible yet.
	Actions bool `json:"actions,omitempty"`
}

// TokenKnobs configure client tokens.
type TokenKnobs struct {
	// Lifetime is 12 h when zero.
	Lifetime Span `json:"lifetime"`
	// QuotaFirst emulates a flaw: if the account is at its limit, a repeated call gets
	// VolumeLimitExceeded although its volume exists.
	QuotaFirst bool `json:"quotaFirst,omitempty"`
	// TagOrder makes the order of tags a parameter.
	TagOrder bool `json:"tagOrder,omitempty"`
}

// Quotas are the account's; 0 means no limit.
type Quotas struct {
	Volumes     int   `json:"volumes,omitempty"`
	StorageGiB  int64 `json:"storageGiB,omitempty"`
	IOPS        int64 `json:"iops,omitempty"` // of io1 and io2 together
	ModifiedGiB int64 `json:"modifiedGiB,omitempty"`
	Snapshots   int   `json:"snapshots,omitempty"`
}

// AttachKnobs configure special cases of attachments.
type AttachKnobs struct {
	// OverLimitHangs accepts an attachment above the instance's limit, which then stays
	// attaching, instead of refusing it.
	OverLimitHangs bool `json:"overLimitHangs,omitempty"`
	// ForceFreesName makes the name of a forced detach usable at once. Otherwise it is
	// usable after the instance stops or reboots.
	ForceFreesName bool `json:"forceFreesName,omitempty"`
	// NameRest makes an attachment on a Xen instance stay attaching if its name was freed
	// less than this ago; 0 disables it.
	NameRest Span `json:"nameRest"`
	// MultiAttachIO1 names regions where io1 volumes can be multi-attach; those
	// of the documentation when nil.
	MultiAttachIO1 []string `json:"multiAttachIo1,omitempty"`
}

// SnapKnobs are the limits of snapshots.
type SnapKnobs struct {
	Pending     int  `json:"pending,omitempty"`     // per volume; 5 when 0, below 0 no limit
	PendingSlow int  `json:"pendingSlow,omitempty"` // per st1 or sc1 volume; 1 when 0, below 0 no limit
	Every       Span `json:"every"`                 // between two of one volume; 0 means no limit, EC2 has about 15 s
	Copies      int  `json:"copies,omitempty"`      // at once; 20 when 0
	FastRestore int  `json:"fastRestore,omitempty"` // snapshots; 5 when 0
	// LockedCode is the code for deleting a locked snapshot, which no source documents;
	// SnapshotLocked when empty.
	LockedCode string `json:"lockedCode,omitempty"`
}

// Encryption configures the encryption of the account.
type Encryption struct {
	// ByDefault encrypts every new volume.
	ByDefault bool `json:"byDefault,omitempty"`
	// UnusableKeys are the keys that the caller may not use: a volume with one fails after
	// it was accepted. "*" means all.
	UnusableKeys []string `json:"unusableKeys,omitempty"`
	// FailVisibly makes such a volume enter the state error instead of disappearing.
	FailVisibly bool `json:"failVisibly,omitempty"`
	// CopiesEncryptedOnly refuses copies of unencrypted volumes.
	CopiesEncryptedOnly bool `json:"copiesEncryptedOnly,omitempty"`
}

// Instant has no transition times and no lag.
func Instant() Knobs { return Knobs{Cooldown: CooldownOff} }

// Bench has the times of the published measurements: 1.5 s to create, 2 s to
// attach, detach and modify.
func Bench() Knobs {
	return Knobs{Times: Times{
		Create: Fixed(1500 * time.Millisecond), Attach: Fixed(2 * time.Second), Detach: Fixed(2 * time.Second),
		Modify: Fixed(2 * time.Second), Optimize: Fixed(5 * time.Minute), Snapshot: Fixed(2 * time.Second),
	}}
}

// Realistic has times like EC2's, short enough that a demonstration shows every state, and
// a slight lag of describes.
func Realistic() Knobs {
	return Knobs{
		Times: Times{
			Create: LogNormal(1500*time.Millisecond, 0.3), Delete: LogNormal(2*time.Second, 0.4),
			Attach: LogNormal(1800*time.Millisecond, 0.4), Detach: LogNormal(2500*time.Millisecond, 0.5),
			Modify: LogNormal(4*time.Second, 0.4), Optimize: LogNormal(30*time.Second, 0.5),
			Snapshot: LogNormal(8*time.Second, 0.5), Initialize: LogNormal(30*time.Second, 0.4),
			Start: Fixed(2 * time.Second), Stop: Fixed(5 * time.Second), Terminate: Fixed(5 * time.Second), Forget: Fixed(30 * time.Minute),
			Enable: Fixed(5 * time.Second), Warm: Fixed(20 * time.Second),
		},
		Consistency: Consistency{Visible: Uniform(0, 300*time.Millisecond), Tags: Uniform(0, 300*time.Millisecond)},
		Snapshots:   SnapKnobs{Every: Span(15 * time.Second)},
	}
}

// Harsh has short times that vary widely, describes that lag and return to earlier
// states, and the flaws that a client must survive.
func Harsh() Knobs {
	return Knobs{
		Times: Times{
			Create: LogNormal(200*time.Millisecond, 0.8), Delete: LogNormal(100*time.Millisecond, 0.8),
			Attach: LogNormal(200*time.Millisecond, 0.8), Detach: LogNormal(200*time.Millisecond, 0.8),
			Modify: LogNormal(200*time.Millisecond, 0.8), Optimize: LogNormal(500*time.Millisecond, 0.8),
			Snapshot: LogNormal(300*time.Millisecond, 0.8), Initialize: LogNormal(time.Second,
				0.5), Forget: Fixed(10 * time.Second),
		},
		Consistency: Consistency{
			Visible: Uniform(0, 400*time.Millisecond), Tags: Uniform(0, 400*time.Millisecond),
			StaleOneIn: 8, StaleFor: Span(time.Second),
		},
		Tokens:   TokenKnobs{QuotaFirst: true},
		Cooldown: CooldownOff,
	}
}

// Preset is a preset by its name.
func Preset(name string) (Knobs, bool) {
	switch name {
	case "instant":
		return Instant(), true
	case "bench":
		return Bench(), true
	case "realistic":
		return Realistic(), true
	case "harsh":
		return Harsh(), true
	}
	return Knobs{}, false
}
