package params

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/volumetype"
)

// The rates at which EC2 fills a volume from its snapshot, in MiB/s (EC2 API,
// CreateVolume, VolumeInitializationRate).
var initializationRates = volumetype.Interval{Least: 100, Most: 300}

// Volume has the parameters of a volume; zero fields are not set.
type Volume struct {
	Type       string
	IOPS       int32
	IOPSPerGB  int32
	Throughput int32 // MiB/s
	// Raise uses the type's least IOPS if IOPSPerGB results in fewer.
	Raise bool
	// KeepRatio makes IOPS grow with the volume; KeepRatioSet reports whether the
	// parameters name it.
	KeepRatio, KeepRatioSet bool
	// Encrypted is nil if no parameter sets it: the account's default applies then.
	Encrypted *bool
	KMSKeyID  string
	// InitializationRate, in MiB/s, is for volumes restored from a snapshot.
	InitializationRate int32
	// WaitInitialized makes the volume's first attachment wait until all its data has
	// been loaded from the snapshot.
	WaitInitialized bool
	Format          Format
	// Tags are tags as key=template, in the order of their parameters, those of
	// mutable parameters last. Untag are keys of tags to remove.
	Tags, Untag []string
	// Lenient lowers IOPS to what the type and the size allow, once the volume is known;
	// see the reading of that name. Notes are the values that this reading changed.
	Lenient bool
	Notes   []string
}

// ParseVolume reads normalized parameters (see Normalize). A value of mutable replaces
// that of the same key in parameters; iops and iopsPerGB replace each other too, because
// both determine the IOPS. Unknown keys are ErrInvalid.
func ParseVolume(parameters, mutable map[string]string, how Reading) (Volume, error) {
	if how == Lenient {
		parameters, mutable = withoutUnset(parameters), withoutUnset(mutable)
	}
	if err := checkExclusive(parameters); err != nil {
		return Volume{}, err
	}
	if err := checkExclusive(mutable); err != nil {
		return Volume{}, err
	}
	var v Volume
	r := &reader{given: overlay(parameters, mutable), how: how}
	v.Type = r.text(keyType)
	v.IOPS, v.IOPSPerGB, v.Throughput = r.number(keyIOPS), r.number(keyIOPSPerGB), r.number(keyThroughput)
	v.Raise, _ = r.truth(keyRaise)
	v.KeepRatio, v.KeepRatioSet = r.truth(keyKeepRatio)
	if encrypted, set := r.truth(keyEncrypted); set {
		v.Encrypted = &encrypted
	}
	v.KMSKeyID = r.text(keyKMSKeyID)
	v.InitializationRate = r.within(keyInitRate, initializationRates)
	v.WaitInitialized, _ = r.truth(keyWaitInitialized)
	v.Format = r.format()
	r.ignore(keyFSType, keyBlockExpress)
	v.Tags = append(r.prefixed(prefixTag, parameters), r.prefixed(prefixTag, mutable)...)
	v.Untag = r.prefixed(prefixUntag, r.given)
	if err := r.done(); err != nil {
		return Volume{}, err
	}
	if how == Lenient {
		v.Lenient, v.Notes = true, r.notes
		if v.Raise || mutable[keyIOPS] != "" {
			v.raiseIOPS()
		}
		v.preferKey()
	}
	return v, v.check()
}

// preferKey encrypts a volume with a key whose class has encrypted: "false", too.
func (v *Volume) preferKey() {
	if v.KMSKeyID != "" && v.Encrypted != nil && !*v.Encrypted {
		v.Notes, v.Encrypted = append(v.Notes, "encrypted is read as true, because kmsKeyId names a key"), nil
	}
}

func checkExclusive(given map[string]string) error {
	if given[keyIOPS] != "" && given[keyIOPSPerGB] != "" {
		return fmt.Errorf("%w: iops %s and iopsPerGB %s exclude each other; leave one out",
			backend.ErrInvalid, given[keyIOPS], given[keyIOPSPerGB])
	}
	return nil
}

func overlay(parameters, mutable map[string]string) map[string]string {
	both := maps.Clone(parameters)
	if both == nil {
		both = map[string]string{}
	}
	if mutable[keyIOPS] != "" || mutable[keyIOPSPerGB] != "" {
		delete(both, keyIOPS)
		delete(both, keyIOPSPerGB)
	}
	maps.Copy(both, mutable)
	return both
}

// check checks the values that do not depend on the size.
func (v Volume) check() error {
	iops := v.IOPS
	if t, err := volumetype.Lookup(v.Type); err == nil && v.Lenient && t.IOPSPerGiB > 0 {
		iops = min(iops, t.IOPS.Most)
	}
	if err := volumetype.CheckValues(v.Type, iops, v.Throughput); err != nil {
		return err
	}
	if v.IOPSPerGB > 0 {
		if t, _ := volumetype.Lookup(v.Type); t.IOPSPerGiB == 0 {
			return fmt.Errorf("%w: iopsPerGB %d: a volume of type %s has no IOPS to choose; leave it out, or choose another type",
				backend.ErrInvalid, v.IOPSPerGB, t.Name)
		}
	}
	if v.KMSKeyID != "" && v.Encrypted != nil && !*v.Encrypted {
		return fmt.Errorf("%w: encrypted is false and kmsKeyId is %q; with a key the volume is encrypted: leave one out",
			backend.ErrInvalid, v.KMSKeyID)
	}
	if strings.ContainsFunc(v.KMSKeyID, notInKeyID) {
		return fmt.Errorf("%w: kmsKeyId %q is not a key ID, alias or ARN", backend.ErrInvalid, v.KMSKeyID)
	}
	return v.Format.check()
}

// notInKeyID reports whether no ID, alias or ARN of a KMS key has the character.
func notInKeyID(r rune) bool {
	return !slices.Contains([]rune(":/_-"), r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// Spec is the volume at a size in GiB, with the IOPS that iopsPerGB results in. The
// caller calls its Check. It returns the error of Ratio.
func (v Volume) Spec(size int32) (volumetype.Spec, error) {
	t, err := volumetype.Lookup(v.Type)
	if err != nil {
		return volumetype.Spec{}, err
	}
	s := volumetype.Spec{Type: t.Name, Size: size, IOPS: v.IOPS, Throughput: v.Throughput}
	if v.Lenient && v.IOPS > 0 && t.IOPSPerGiB > 0 {
		s.IOPS = min(v.IOPS, t.IOPSAt(size).Most)
	}
	if v.IOPSPerGB > 0 {
		s.IOPS, err = v.Ratio(t, size)
	}
	return s, err
}

// AskedIOPS are the IOPS that the parameters name for a size in GiB; 0 if they name none.
func (v Volume) AskedIOPS(size int32) int64 {
	return max(int64(v.IOPS), int64(v.IOPSPerGB)*int64(size))
}

// Ratio is the number of IOPS that iopsPerGB results in at a size in GiB. ErrOutOfRange if
// the type does not allow it.
func (v Volume) Ratio(t volumetype.Type, size int32) (int32, error) {
	allowed := t.IOPSAt(size)
	iops := int64(v.IOPSPerGB) * int64(size)
	refuse := func(advice string) error {
		return fmt.Errorf("%w: iopsPerGB %d comes to %d IOPS at %d GiB; a volume of type %s can have %s there: %s",
			backend.ErrOutOfRange, v.IOPSPerGB, iops, size, t.Name, allowed, advice)
	}
	switch {
	case iops > int64(allowed.Most) && v.Lenient:
		return allowed.Most, nil
	case iops > int64(allowed.Most):
		return 0, refuse("choose a lower ratio, or iops")
	case iops < int64(allowed.Least) && !v.Raise:
		return 0, refuse("set allowAutoIOPSPerGBIncrease to \"true\" to have the least, or ask for a larger volume")
	}
	return max(int32(iops), allowed.Least), nil
}

// Sizes are the sizes in GiB that a volume of the type can have.
func (v Volume) Sizes() (volumetype.Interval, error) {
	t, err := volumetype.Lookup(v.Type)
	return t.Size, err
}
