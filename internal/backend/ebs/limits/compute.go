package limits

import (
	"fmt"
	"strings"
)

// Facts are what the number of volumes that an instance can take depends on.
type Facts struct {
	InstanceType string
	// Interfaces are the attached network interfaces, the primary one included;
	// 0, unknown, counts as that one.
	Interfaces int
	// Disks are the EBS volumes that are attached and not the driver's; at least
	// the root volume counts.
	Disks int
}

// Config overrides what would be derived; nil fields are derived.
type Config struct {
	// Volumes is the answer, whatever the facts.
	Volumes *int64
	// Reserved are the slots that are not the driver's, instead of Facts.Disks.
	Reserved *int64
}

// Check refuses what excludes each other or makes no sense.
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
	// Slots of the type, of which Reserved and Interfaces are taken by others;
	// all 0 when the number was fixed.
	Slots, Reserved, Interfaces int64
	// Derivation is a sentence for a log line.
	Derivation string
}

// Compute follows the rule: slots of the type, less the reserved ones, less the
// network interfaces besides the primary one where they share the slots.
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
		fmt.Fprintf(&why, ", less %d network interfaces besides the primary one", r.Interfaces)
	}
	r.Volumes, r.Derivation = r.Slots-r.Reserved-r.Interfaces, why.String()
	return atLeastOne(r)
}

func atLeastOne(r Result) Result {
	if r.Volumes < 1 {
		r.Derivation = fmt.Sprintf("%s: that is %d; 1 is reported, since 0 would mean no limit", r.Derivation, r.Volumes)
		r.Volumes = 1
	}
	return r
}
