package volumetype

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Spec describes a desired or an existing volume. Size is in GiB, Throughput in MiB/s.
// IOPS and Throughput are 0 if the type determines them.
type Spec struct {
	Type             string
	Size             int32
	IOPS, Throughput int32
	MultiAttach      bool
}

// CheckValues returns ErrInvalid if the type allows the IOPS or the throughput at no
// size. 0 means that none is requested.
func CheckValues(name string, iops, throughput int32) error {
	t, err := Lookup(name)
	if err != nil {
		return err
	}
	return t.checkValues(iops, throughput)
}

func (t Type) checkValues(iops, throughput int32) error {
	if err := checkValue(t, "iops", "", iops, t.IOPS); err != nil {
		return err
	}
	return checkValue(t, "throughput", " MiB/s", throughput, t.Throughput)
}

func checkValue(t Type, field, unit string, value int32, allowed Interval) error {
	switch {
	case value == 0:
		return nil
	case !allowed.settable():
		return fmt.Errorf("%w: %s %d: a volume of type %s has no %s to choose; leave it out, or choose another type",
			backend.ErrInvalid, field, value, t.Name, field)
	case !allowed.has(value):
		return fmt.Errorf("%w: %s %d: a volume of type %s can have %s%s",
			backend.ErrInvalid, field, value, t.Name, allowed, unit)
	}
	return nil
}

// Check returns an error if a volume cannot have the spec: ErrOutOfRange if another size
// would make it valid, otherwise ErrInvalid.
func (s Spec) Check() error {
	t, err := Lookup(s.Type)
	if err != nil {
		return err
	}
	return s.checkWithin(t)
}

func (s Spec) checkWithin(t Type) error {
	if !t.Size.has(s.Size) {
		return fmt.Errorf("%w: size %d GiB: a volume of type %s can have %s GiB",
			backend.ErrOutOfRange, s.Size, t.Name, t.Size)
	}
	if err := t.checkValues(s.IOPS, s.Throughput); err != nil {
		return err
	}
	if err := s.checkRatios(t); err != nil {
		return err
	}
	if s.MultiAttach && !t.MultiAttach {
		return fmt.Errorf("%w: access from several nodes takes a volume of type io1 or io2 (EBS Multi-Attach), not %s",
			backend.ErrInvalid, t.Name)
	}
	return nil
}

func (s Spec) checkRatios(t Type) error {
	iops := s.IOPS
	if iops == 0 {
		iops = t.DefaultIOPS
	}
	if t.IOPS.settable() {
		if iops == 0 {
			return fmt.Errorf("%w: iops is missing: a volume of type %s and %d GiB needs %s; name iops or iopsPerGB",
				backend.ErrInvalid, t.Name, s.Size, t.IOPSAt(s.Size))
		}
		if allowed := t.IOPSAt(s.Size); !allowed.has(iops) {
			return fmt.Errorf("%w: iops %d: a volume of type %s and %d GiB can have %s (%d for each GiB); ask for fewer or for a larger volume",
				backend.ErrOutOfRange, iops, t.Name, s.Size, allowed, t.IOPSPerGiB)
		}
	}
	if allowed := t.ThroughputAt(iops); s.Throughput != 0 && !allowed.has(s.Throughput) {
		return fmt.Errorf("%w: throughput %d: a volume of type %s with %d IOPS can have %s MiB/s (one for each %d IOPS); ask for less or for more iops",
			backend.ErrInvalid, s.Throughput, t.Name, iops, allowed, t.IOPSPerMiB)
	}
	return nil
}

// WithDefaults adds the values that EC2 chooses for the fields that are 0, so that a
// desired spec can be compared with a volume. The IOPS of gp2 cannot be chosen: they
// stay 0.
func (s Spec) WithDefaults() Spec {
	t, err := Lookup(s.Type)
	if err != nil {
		return s
	}
	s.Type = t.Name
	if s.IOPS == 0 {
		s.IOPS = t.DefaultIOPS
	}
	if s.Throughput == 0 {
		s.Throughput = t.DefaultThroughput
	}
	return s.Chosen()
}

// Chosen is a volume's spec without the performance that its type determines. For gp2,
// DescribeVolumes shows such IOPS.
func (s Spec) Chosen() Spec {
	if t, err := Lookup(s.Type); err == nil {
		if !t.IOPS.settable() {
			s.IOPS = 0
		}
		if !t.Throughput.settable() {
			s.Throughput = 0
		}
	}
	return s
}
