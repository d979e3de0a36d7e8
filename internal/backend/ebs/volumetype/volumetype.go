// Package volumetype has the limits of the types of EBS volumes: size, IOPS, throughput,
// their ratios, and the modifications that EC2 allows. The numbers are those of the EBS
// user guide, "Amazon EBS volume types".
//
// EC2 checks the same limits, but reports some errors only after a successful answer.
// So this package checks them before the first call.
package volumetype

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Names of the types.
const (
	GP3      = "gp3"
	GP2      = "gp2"
	IO1      = "io1"
	IO2      = "io2"
	ST1      = "st1"
	SC1      = "sc1"
	Standard = "standard"
)

// Default is the type of a volume whose creation names none. EC2's default is gp2.
const Default = GP3

// Interval is a range of whole numbers that includes both ends. A property that cannot
// be chosen has the zero Interval.
type Interval struct{ Least, Most int32 }

func (i Interval) settable() bool { return i != Interval{} }

func (i Interval) has(value int32) bool { return value >= i.Least && value <= i.Most }

// including is the smallest interval with i and the value. Without a value (0) it is i.
func (i Interval) including(value int32) Interval {
	if value == 0 || !i.settable() {
		return i
	}
	return Interval{min(i.Least, value), max(i.Most, value)}
}

// String returns the interval for error messages.
func (i Interval) String() string { return fmt.Sprintf("%d to %d", i.Least, i.Most) }

// Type has the limits of one type of volume.
type Type struct {
	Name string
	// Size in GiB.
	Size Interval
	// IOPS that can be chosen. If DefaultIOPS is 0, they must be.
	IOPS        Interval
	DefaultIOPS int32
	// IOPSPerGiB bounds IOPS above the least.
	IOPSPerGiB int32
	// Throughput in MiB/s that can be chosen, of which one needs IOPSPerMiB IOPS.
	Throughput        Interval
	DefaultThroughput int32
	IOPSPerMiB        int32
	// MultiAttach reports whether several instances can attach a volume at once.
	MultiAttach bool
}

var types = []Type{
	{
		Name: GP3, Size: Interval{1, 65536},
		IOPS: Interval{3000, 80000}, DefaultIOPS: 3000, IOPSPerGiB: 500,
		Throughput: Interval{125, 2000}, DefaultThroughput: 125, IOPSPerMiB: 4,
	},
	{Name: GP2, Size: Interval{1, 16384}},
	{Name: IO1, Size: Interval{4, 16384}, IOPS: Interval{100, 64000}, IOPSPerGiB: 50, MultiAttach: true},
	{Name: IO2, Size: Interval{4, 65536}, IOPS: Interval{100, 256000}, IOPSPerGiB: 1000, MultiAttach: true},
	{Name: ST1, Size: Interval{125, 16384}},
	{Name: SC1, Size: Interval{125, 16384}},
	{Name: Standard, Size: Interval{1, 1024}},
}

// Lookup finds a type; "" is the default one. ErrInvalid names the known ones.
func Lookup(name string) (Type, error) {
	if name == "" {
		name = Default
	}
	i := slices.IndexFunc(types, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return Type{}, fmt.Errorf("%w: type %q is not known; known are %s",
			backend.ErrInvalid, name, strings.Join(Names(), ", "))
	}
	return types[i], nil
}

// Names lists the types, the default first.
func Names() []string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.Name
	}
	return names
}

// IOPSAt is the interval of IOPS at a size in GiB. The least is allowed at any size.
func (t Type) IOPSAt(size int32) Interval {
	most := min(int64(t.IOPS.Most), int64(size)*int64(t.IOPSPerGiB))
	return Interval{t.IOPS.Least, max(t.IOPS.Least, int32(most))}
}

// including is the type with limits that allow a volume that exists: EC2 may have made it
// under other limits than those of this package.
func (t Type) including(s Spec) Type {
	if t.Name != s.Type || s.Size <= 0 {
		return t
	}
	t.Size, t.IOPS = t.Size.including(s.Size), t.IOPS.including(s.IOPS)
	t.Throughput = t.Throughput.including(s.Throughput)
	if s.IOPS > t.IOPSAt(s.Size).Most {
		t.IOPSPerGiB = (s.IOPS + s.Size - 1) / s.Size
	}
	if s.IOPS > 0 && s.Throughput > 0 {
		t.IOPSPerMiB = min(t.IOPSPerMiB, s.IOPS/s.Throughput)
	}
	return t
}

// ThroughputAt is the interval of throughput at a number of IOPS.
func (t Type) ThroughputAt(iops int32) Interval {
	if t.IOPSPerMiB == 0 {
		return t.Throughput
	}
	return Interval{t.Throughput.Least, max(t.Throughput.Least, min(t.Throughput.Most, iops/t.IOPSPerMiB))}
}
