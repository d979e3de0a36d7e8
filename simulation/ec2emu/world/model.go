package world

import (
	"slices"
	"time"
)

// Names of states are EC2's (API types VolumeState, VolumeAttachmentState,
// VolumeModificationState, SnapshotState, InstanceStateName).
const (
	creating  = "creating"
	available = "available"
	inUse     = "in-use"
	deleting  = "deleting"
	failed    = "error"

	attaching = "attaching"
	attached  = "attached"
	detaching = "detaching"
	busy      = "busy"

	modifying          = "modifying"
	optimizing         = "optimizing"
	completed          = "completed"
	modificationFailed = "failed"

	pending    = "pending"
	running    = "running"
	shutting   = "shutting-down"
	terminated = "terminated"
	stopping   = "stopping"
	stopped    = "stopped"
	enabling   = "enabling"
	enabled    = "enabled"
	disabling  = "disabling"
	disabled   = "disabled"
)

// tags are the tags of a resource.
type tags map[string]string

// volume is an EBS volume. Fields are exported for the state file.
type volume struct {
	ID, Type, State, Zone string
	Order                 int64
	Size, IOPS            int32
	Throughput            int32
	Created               time.Time
	Encrypted, Multi      bool
	KMSKey, Outpost       string
	SnapshotID, SourceID  string
	Rate                  int32 // of initialization, MiB/s
	FastRestored          bool
	Operator, Token       string
	Tags                  tags
	Attachments           []*attachment
	Last                  *modification
	Modified              []time.Time // beginnings of modifications, of the last day
	Initialized           time.Time   // when a restored volume has all its data
	Visible, TagsVisible  time.Time   // to describes
	SnapshotAt            time.Time   // the last snapshot taken
	Impaired              bool        // I/O is disabled until it is enabled by a call
	Doom                  string      // state after creating, when not available
	BootOf                string      // the instance whose root volume it is
	Ended                 map[Transition]time.Time

	before  *volume // as before the last change, for stale reads
	changed time.Time
}

// attachment is a volume's at an instance.
type attachment struct {
	InstanceID, State   string
	Device              string // the name that holds the slot
	Shown               string // what describes show, when another
	Since               time.Time
	Card                int32
	DeleteOnTermination bool
	Forced, Stuck       bool
	Gen                 int64 // of the transition under way
	Presented           bool  // the guest sees the device
}

// modification is a volume's most recent one.
type modification struct {
	State, Message  string
	From, To        shape
	Start, Due, End time.Time
	Optimizing      time.Time
	Gen             int64
	Doomed          bool
	Visible         time.Time
	Before          *modification // what describes show until Visible
}

// shape is what a modification changes.
type shape struct {
	Type             string
	Size             int32
	IOPS, Throughput int32
	Multi            bool
}

func (v *volume) shape() shape {
	return shape{Type: v.Type, Size: v.Size, IOPS: v.IOPS, Throughput: v.Throughput, Multi: v.Multi}
}

// end notes when a transition of a kind last ended.
func (v *volume) end(kind Transition, now time.Time) {
	if v.Ended == nil {
		v.Ended = map[Transition]time.Time{}
	}
	v.Ended[kind] = now
}

func (v *volume) at(instanceID string) *attachment {
	for _, a := range v.Attachments {
		if a.InstanceID == instanceID {
			return a
		}
	}
	return nil
}

// clone is a copy for stale reads, without its history.
func (v *volume) clone() *volume {
	c := *v
	c.before = nil
	c.Attachments = make([]*attachment, len(v.Attachments))
	for i, a := range v.Attachments {
		copied := *a
		c.Attachments[i] = &copied
	}
	if v.Last != nil {
		last := *v.Last
		c.Last = &last
	}
	c.Tags = cloneTags(v.Tags)
	c.Modified = slices.Clone(v.Modified)
	return &c
}

// instance is an EC2 instance.
type instance struct {
	ID, Type, State, Zone string
	Order                 int64
	Launched              time.Time
	Interfaces            []NetworkInterface
	RootName, Outpost     string
	Hidden                []string // names that the image holds and describes do not show
	Spoiled               []string // names of forced detaches
	Freed                 map[string]time.Time
	Volumes               []string // attached or on the way, in order of attaching
	AtBoot                []string // names of the volumes that were there at start
	PrivateDNS, PrivateIP string
	Tags                  tags
	Gen                   int64

	before  *Instance // as before the last change
	changed time.Time
}

// snapshot is an EBS snapshot.
type snapshot struct {
	ID, VolumeID, State, Message string
	Order                        int64
	Started, Due, Completed      time.Time
	Size                         int32
	Description                  string
	Encrypted                    bool
	KMSKey, Outpost, Zone        string
	Owner                        string // "" is the account itself
	Public                       bool
	Copy                         bool
	Minutes                      int32
	Image                        bool // backs an image, so it cannot be deleted
	Doomed                       bool
	Tags                         tags
	Lock                         *lock
	Gen                          int64
	Visible, TagsVisible         time.Time

	before  *snapshot
	changed time.Time
}

// lock is a snapshot's.
type lock struct {
	Mode              string // governance, compliance
	Created, Expires  time.Time
	CoolOff           time.Time // until when a compliance lock can be taken back
	Days, CoolOffTime int32
	Start             time.Time
}

// fastRestore is that of a snapshot in a zone.
type fastRestore struct {
	SnapshotID, Zone, State, Reason                    string
	Order, Gen                                         int64
	Enabling, Optimizing, Enabled, Disabling, Disabled time.Time
	Credits                                            float64
	Refilled                                           time.Time
}

// token is EC2's record of a client token.
type token struct {
	Hash, VolumeID string
	Created        time.Time
	Dead           bool // the volume was deleted, or failed
}

func cloneTags(t tags) tags {
	c := make(tags, len(t))
	for k, v := range t {
		c[k] = v
	}
	return c
}
