package limits

import (
	"fmt"
	"strings"
)

// Facts are those that decide how many volumes an instance can take.
type Facts struct {
	InstanceType string
	// Interfaces are the attached network interfaces with the primary one; 0 means
	// unknown, and counts as 1.
	Interfaces int
	// Disks are the attached EBS volumes that are not the driver's. 0 counts as 1,
	// the root volume.
	Disks int
}

// Config overrides derived values; nil fields are derived.
type Config struct {
	// Volumes is the limit itself.
	Volumes *int64
	// Reserved is the number of slots that are not the driver's, instead of Facts.Disks.
	Reserved *int64
}

// Check rejects fields that exclude each other and negative numbers.
func (c Config) Check() error {
	switch {
	case c.Volumes != nil && c.Reserved != nil:
		return fmt.Errorf("a fixed number of volumes and a number of reserved slots exclude each other")
	case c.Volumes != nil && *c.Volumes < 0:
		return fmt.Errorf("a limit of %d volumes", *c.Volumes)
	case c.Reserved != nil && *c.Reserved < 0:
		return fmt.Errorf("%d reserved slots", *c.Reserved)
	}
	return nil
}

// Result is how many volumes of the driver an instance can take, and why.
type Result struct {
	Volumes int64 // at least 1: to Kubernetes, 0 is "no limit"
	// Slots of the type, of which others use Reserved and Interfaces; all 0 if the
	// number is fixed by configuration.
	Slots, Reserved, Interfaces int64
	// Derivation is a sentence for a log line.
	Derivation string
}

// Compute returns the slots of the type, less the reserved ones and, if network
// interfaces share the slots, less all but the primary one.
func Compute(c Config, f Facts) Result {
	if c.Volumes != nil {
		return atLeastOne(Result{Volumes: *c.Volumes, Derivation: "fixed by configuration"})
	}
	limit, known := Of(f.InstanceType)
	var why strings.Builder
	kind := "dedicated to volumes"
	if limit.Shared {
		kind = "shared with network interfaces"
	}
	fmt.Fprintf(&why, "%d slots of %s, %s", limit.Slots, f.InstanceType, kind)
	if !known {
		why.WriteString(" (the default: the type is not in the table)")
	}
	r := Result{Slots: int64(limit.Slots), Reserved: int64(max(f.Disks, 1))}
	if c.Reserved != nil {
		r.Reserved = *c.Reserved
		fmt.Fprintf(&why, ", less %d reserved by configuration", r.Reserved)
	} else {
		fmt.Fprintf(&why, ", less %d attached volumes that are not the driver's", r.Reserved)
	}
	if limit.Shared && f.Interfaces > 1 {
		r.Interfaces = int64(f.Interfaces) - 1
		fmt.Fprintf(&why, ", less %d network interfaces without the primary one", r.Interfaces)
	}
	r.Volumes, r.Derivation = r.Slots-r.Reserved-r.Interfaces, why.String()
	return atLeastOne(r)
}

func atLeastOne(r Result) Result {
	if r.Volumes < 1 {
		r.Derivation = fmt.Sprintf("%s: that is %d; 1 is reported, since 0 would mean no limit",
			r.Derivation, r.Volumes)
		r.Volumes = 1
	}
	return r
}
