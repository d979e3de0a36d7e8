package params

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/volumetype"
)

// Reading is how values are read that the AWS EBS CSI driver changes without a word.
type Reading int

const (
	// Strict rejects them.
	Strict Reading = iota
	// Lenient accepts them, so that classes that were written for that driver keep
	// working: IOPS are lowered to what the type and the size allow, empty values and
	// numbers that are not above 0 are as if they were left out, and switches have other
	// spellings. Each change is in Volume.Notes.
	Lenient
)

// Spellings of true and false that a lenient reading accepts. The in-tree plugin of
// Kubernetes, whose classes the AWS EBS CSI driver serves, accepted "1" and "t" (Go's
// strconv.ParseBool).
var (
	affirmative = []string{"1", "t", "y", "yes", "on"}
	negative    = []string{"0", "f", "n", "no", "off"}
)

// meaning reads another spelling of a switch. The AWS EBS CSI driver takes each as false.
// Here the affirmative ones are true. An unknown word is false, too, except for
// encrypted: a volume cannot be encrypted later, so the word is rejected.
func (r *reader) meaning(key, text string) bool {
	word := strings.ToLower(strings.TrimSpace(text))
	value := slices.Contains(affirmative, word)
	if key == keyEncrypted && !value && !slices.Contains(negative, word) {
		r.refuse(key, `"true" or "false"`)
		return false
	}
	r.note("%s %q is read as %q", key, text, strconv.FormatBool(value))
	return value
}

func (r *reader) note(format string, values ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, values...))
}

// numbers are the keys whose value is a number that is unset if it is not above 0.
var numbers = []string{keyIOPS, keyIOPSPerGB, keyThroughput, keyInitRate}

// withoutUnset omits the keys that the AWS EBS CSI driver reads as if they were left out.
func withoutUnset(given map[string]string) map[string]string {
	kept := maps.Clone(given)
	maps.DeleteFunc(kept, func(key, value string) bool {
		if slices.Contains(numbers, key) {
			n, err := strconv.ParseInt(value, 10, 32)
			return err == nil && n <= 0
		}
		return value == "" && slices.Contains(slices.Concat(Names(), MutableNames()), key)
	})
	return kept
}

// raiseIOPS raises IOPS to the least that the type can have.
func (v *Volume) raiseIOPS() {
	t, err := volumetype.Lookup(v.Type)
	if err != nil || v.IOPS == 0 || v.IOPS >= t.IOPS.Least {
		return
	}
	v.Notes = append(v.Notes,
		fmt.Sprintf("iops %d is read as %d, which a volume of type %s can have", v.IOPS, t.IOPS.Least, t.Name))
	v.IOPS = t.IOPS.Least
}
