package params

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Format has the options of mkfs: values by the lower-case keys that they have in the
// volume context, which passes them to the node.
type Format map[string]string

// contextWaitInitialized is WaitInitialized in the volume context.
const contextWaitInitialized = "blockattachuntilinitialized"

// formatKeys are the parameters of Format and the filesystems that have them.
var formatKeys = []struct {
	name string
	flag bool // "true" or "false"; a number otherwise
	of   []string
}{
	{keyBlockSize, false, []string{"ext2", "ext3", "ext4", "xfs"}},
	{keyInodeSize, false, []string{"ext2", "ext3", "ext4", "xfs"}},
	{keyBytesPerInode, false, []string{"ext2", "ext3", "ext4"}},
	{keyInodes, false, []string{"ext2", "ext3", "ext4"}},
	{keyBigAlloc, true, []string{"ext4"}},
	{keyClusterSize, false, []string{"ext4"}},
	{keyEncryption, true, []string{"ext4"}},
}

// formatValue matches a number with an optional unit of mkfs, such as 4096 or 4k. The
// value becomes an argument of a program, so other values are rejected.
var formatValue = regexp.MustCompile(`^[1-9][0-9]{0,17}[A-Za-z]?$`)

func (r *reader) format() Format {
	format := Format{}
	for _, key := range formatKeys {
		name := strings.ToLower(key.name)
		if key.flag {
			if enabled, _ := r.truth(key.name); enabled {
				format[name] = "true"
			}
			continue
		}
		value, set := r.take(key.name)
		switch {
		case set && !formatValue.MatchString(value):
			r.refuse(key.name, "a number, such as 4096 or 4k")
		case set:
			format[name] = value
		}
	}
	return format
}

func (f Format) check() error {
	if size := f[strings.ToLower(keyClusterSize)]; size != "" && f[strings.ToLower(keyBigAlloc)] == "" {
		return fmt.Errorf(`%w: ext4ClusterSize %s: set ext4BigAlloc to "true" too, or leave it out`, backend.ErrInvalid,
			size)
	}
	return nil
}

// Check returns ErrInvalid if the filesystem of a use lacks one of the options; usual is
// the filesystem of a use that names none.
func (f Format) Check(uses []backend.Capability, usual string) error {
	for _, use := range uses {
		for _, key := range formatKeys {
			value, set := f[strings.ToLower(key.name)]
			if !set {
				continue
			}
			if use.Block {
				return fmt.Errorf("%w: %s %s: a raw block volume gets no filesystem; leave it out",
					backend.ErrInvalid, key.name, value)
			}
			fsType := use.FSType
			if fsType == "" {
				fsType = usual
			}
			if !slices.Contains(key.of, fsType) {
				return fmt.Errorf("%w: %s %s: %s has no such option; it is for %s",
					backend.ErrInvalid, key.name, value, fsType, strings.Join(key.of, ", "))
			}
		}
	}
	return nil
}

// Context is the volume context: the parameters that the node and an attachment need.
func (v Volume) Context() map[string]string {
	context := maps.Clone(map[string]string(v.Format))
	if v.WaitInitialized {
		if context == nil {
			context = map[string]string{}
		}
		context[contextWaitInitialized] = "true"
	}
	return context
}

// WaitsInitialized reports whether a volume context requests that an attachment waits
// for the volume's data.
func WaitsInitialized(context map[string]string) bool {
	return strings.EqualFold(context[contextWaitInitialized], "true")
}
