package params

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/volumetype"
)

// The bounds of locks in days and in hours (EC2 API, LockSnapshot).
var (
	lockDays  = volumetype.Interval{Least: 1, Most: 36500}
	coolHours = volumetype.Interval{Least: 1, Most: 72}
)

// Modes of a lock.
const (
	Governance = "governance"
	Compliance = "compliance"
)

var outpostARN = regexp.MustCompile(`^arn:aws[a-z-]*:outposts:[a-z0-9-]+:[0-9]{12}:outpost/op-[0-9a-f]+$`)

// Snapshot has the parameters of a VolumeSnapshotClass.
type Snapshot struct {
	// FastRestoreZones are the zones in which fast snapshot restore is to be enabled.
	FastRestoreZones []string
	// OutpostARN keeps the snapshot on that Outpost.
	OutpostARN string
	Lock       Lock
	Tags       []string // see Volume
}

// Lock protects a snapshot from deletion; the zero Lock is none. Either Days or Expires
// is set.
type Lock struct {
	Mode    string
	Days    int32
	Expires time.Time
	// CoolOff is how long a compliance lock can still be removed, in hours.
	CoolOff int32
}

// SnapshotNames are the keys of a VolumeSnapshotClass, in the form of backend.Traits.
func SnapshotNames() []string {
	return []string{
		keyFastRestoreZones, keyOutpostARN, keyLockMode, keyLockDuration, keyLockExpiration, keyLockCoolOff,
		prefixTag + everyKeyWith,
	}
}

// ParseSnapshot reads the parameters of a VolumeSnapshotClass, whose keys may be
// in any case. Unknown keys, keys given twice and bad values are ErrInvalid.
func ParseSnapshot(parameters map[string]string) (Snapshot, error) {
	given, err := fold("parameters", parameters, SnapshotNames(), Strict)
	if err != nil {
		return Snapshot{}, err
	}
	r := &reader{given: given}
	s := Snapshot{
		FastRestoreZones: r.list(keyFastRestoreZones),
		OutpostARN:       r.text(keyOutpostARN),
		Lock: Lock{
			Mode: r.text(keyLockMode), Days: r.within(keyLockDuration, lockDays),
			Expires: r.time(keyLockExpiration), CoolOff: r.within(keyLockCoolOff, coolHours),
		},
		Tags: r.prefixed(prefixTag, given),
	}
	if s.OutpostARN != "" && !outpostARN.MatchString(s.OutpostARN) {
		r.refuse(keyOutpostARN, "the ARN of an Outpost, arn:aws:outposts:REGION:ACCOUNT:outpost/op-ID")
	}
	if err := r.done(); err != nil {
		return Snapshot{}, err
	}
	return s, s.Lock.check()
}

// list returns the parts of a value between commas, sorted.
func (r *reader) list(key string) []string {
	text := r.text(key)
	if text == "" {
		return nil
	}
	var parts []string
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			r.refuse(key, "names with commas between them")
			return nil
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}

func (r *reader) time(key string) time.Time {
	text := r.text(key)
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		r.refuse(key, "a time such as 2030-12-31T23:59:59Z (RFC 3339)")
	}
	return at
}

func (l Lock) check() error {
	switch {
	case l == Lock{}:
		return nil
	case l.Mode == "":
		return fmt.Errorf("%w: lockMode is missing; it must be %s or %s", backend.ErrInvalid, Governance, Compliance)
	case l.Mode != Governance && l.Mode != Compliance:
		return fmt.Errorf("%w: lockMode %q: it must be %s or %s", backend.ErrInvalid, l.Mode, Governance, Compliance)
	case l.CoolOff != 0 && l.Mode != Compliance:
		return fmt.Errorf("%w: lockCoolOffPeriod %d: only lockMode %s has one",
			backend.ErrInvalid, l.CoolOff, Compliance)
	case (l.Days == 0) == l.Expires.IsZero():
		return fmt.Errorf("%w: lockMode %s needs one of lockDuration and lockExpirationDate",
			backend.ErrInvalid, l.Mode)
	}
	return nil
}
