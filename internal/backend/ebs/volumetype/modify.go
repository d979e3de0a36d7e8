package volumetype

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// modifiedIOPS are the IOPS that EC2 chooses if the type changes to one with IOPS and
// the change names none (EC2 API, ModifyVolume, Iops).
const modifiedIOPS = 3000

// Changed is the volume after a ModifyVolume that names the non-zero fields of change.
// The other fields stay, except that IOPS and throughput change with the type (EC2 API,
// ModifyVolume).
func (s Spec) Changed(change Spec) Spec {
	after := s.Chosen()
	if change.Size != 0 {
		after.Size = change.Size
	}
	if change.Type != "" && change.Type != s.Type {
		after = after.ofType(change.Type)
	}
	if change.IOPS != 0 {
		after.IOPS = change.IOPS
	}
	if change.Throughput != 0 {
		after.Throughput = change.Throughput
	}
	return after
}

func (s Spec) ofType(name string) Spec {
	s.Type, s.IOPS, s.Throughput = name, 0, 0
	if t, err := Lookup(name); err == nil {
		if t.IOPS.settable() {
			s.IOPS = modifiedIOPS
		}
		s.Throughput = t.DefaultThroughput
	}
	return s
}

// Limits are the limits of a type for a change of this volume. They include the values
// that the volume has, so that a volume that EC2 made under higher limits than those of
// this package can keep them.
func (s Spec) Limits(name string) (Type, error) {
	t, err := Lookup(name)
	return t.including(s.Chosen()), err
}

// CheckChange returns an error if the volume cannot change to after (see Changed). A
// smaller size is ErrOutOfRange.
func (s Spec) CheckChange(after Spec) error {
	if after.Size < s.Size {
		return fmt.Errorf("%w: size %d GiB: the volume has %d GiB, and a volume can only grow",
			backend.ErrOutOfRange, after.Size, s.Size)
	}
	if err := s.checkMultiAttach(after); err != nil {
		return err
	}
	t, err := s.Limits(after.Type)
	if err != nil {
		return err
	}
	return after.checkWithin(t)
}

// checkMultiAttach rejects changes that EC2 does not make to a Multi-Attach volume (EBS
// user guide, "Attach a volume to multiple instances").
func (s Spec) checkMultiAttach(after Spec) error {
	if !s.MultiAttach {
		return nil
	}
	if after.Type != s.Type {
		return fmt.Errorf("%w: type %s: the volume can be attached to several nodes (EBS Multi-Attach) and must stay %s",
			backend.ErrInvalid, after.Type, s.Type)
	}
	if s.Type == IO1 && (after.Size != s.Size || after.IOPS != s.IOPS) {
		return fmt.Errorf("%w: an io1 volume that can be attached to several nodes (EBS Multi-Attach) can change neither size nor iops",
			backend.ErrInvalid)
	}
	return nil
}
