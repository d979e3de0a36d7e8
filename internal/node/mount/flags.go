package mount

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Option is a mount option for the filesystem itself: "key" or "key=value".
type Option struct {
	Key, Value string
	HasValue   bool
}

// String is the option as mount(8) would be given it.
func (o Option) String() string {
	if !o.HasValue {
		return o.Key
	}
	return o.Key + "=" + o.Value
}

// Flags are the mount flags of a request, sorted by who understands them.
type Flags struct {
	// Attributes are the names of properties of the one mount: ro, nosuid,
	// nodev, noexec, nosymfollow, noatime, nodiratime, strictatime.
	Attributes []string
	// Options go to the filesystem, unchecked: the kernel knows which exist.
	Options []Option
}

// ReadOnly tells whether the flags contain ro.
func (f Flags) ReadOnly() bool { return slices.Contains(f.Attributes, "ro") }

// attributes are the flags of one mount (mount_setattr(2)); those with an empty
// meaning restate the default.
var attributes = map[string]string{
	"ro": "ro", "rw": "",
	"nosuid": "nosuid", "suid": "",
	"nodev": "nodev", "dev": "",
	"noexec": "noexec", "exec": "",
	"nosymfollow": "nosymfollow", "symfollow": "",
	"nodiratime": "nodiratime", "diratime": "",
	"noatime": "noatime", "strictatime": "strictatime", "relatime": "", "atime": "",
}

// exclusive groups: at most one flag of each may be given.
var exclusive = [][]string{
	{"ro", "rw"}, {"nosuid", "suid"}, {"nodev", "dev"}, {"noexec", "exec"},
	{"nosymfollow", "symfollow"}, {"nodiratime", "diratime"},
	{"noatime", "strictatime", "relatime"}, {"noatime", "atime"},
	{"sync", "async"}, {"lazytime", "nolazytime"}, {"discard", "nodiscard"},
}

// userspace flags mean something to mount(8) and fstab(5) only and nothing here.
var userspace = []string{"defaults", "_netdev", "nofail"}

// refused flags change what is mounted, or where, or reach another device; the
// reason stands in the error.
var refused = map[string]string{
	"remount": "it changes an existing mount", "bind": "the driver decides what is mounted",
	"rbind": "the driver decides what is mounted", "move": "the driver decides what is mounted",
	"loop": "the driver attaches devices", "offset": "the driver attaches devices", "sizelimit": "the driver attaches devices",
	"source": "the driver attaches devices", "device": "it names another device",
	"logdev": "it names another device", "rtdev": "it names another device",
	"journal_dev": "it names another device", "journal_path": "it names another device",
	"shared": "propagation belongs to the node", "rshared": "propagation belongs to the node",
	"private": "propagation belongs to the node", "rprivate": "propagation belongs to the node",
	"slave": "propagation belongs to the node", "rslave": "propagation belongs to the node",
	"unbindable": "propagation belongs to the node", "runbindable": "propagation belongs to the node",
}

// ParseFlags sorts mount flags. A flag may be a list with commas, as in
// fstab(5); commas inside double quotes belong to a value (context="…").
// ErrInvalid for flags that are dangerous or contradict each other. Whether a
// filesystem knows an option turns out when it is mounted.
func ParseFlags(flags []string) (Flags, error) {
	var parsed Flags
	seen := map[string]bool{}
	for _, flag := range flags {
		for _, one := range splitQuoted(flag) {
			if err := parsed.add(one); err != nil {
				return Flags{}, err
			}
			seen[one] = true
		}
	}
	for _, group := range exclusive {
		given := slices.DeleteFunc(slices.Clone(group), func(name string) bool { return !seen[name] })
		if len(given) > 1 {
			return Flags{}, fmt.Errorf("%w: mount flags %s contradict each other", backend.ErrInvalid, strings.Join(given, " and "))
		}
	}
	return parsed, nil
}

func (f *Flags) add(flag string) error {
	if i := strings.IndexFunc(flag, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
		return fmt.Errorf("%w: mount flag %q contains a control character", backend.ErrInvalid, flag)
	}
	key, value, hasValue := strings.Cut(flag, "=")
	switch reason, bad := refused[key]; {
	case flag == "":
		return fmt.Errorf("%w: an empty mount flag", backend.ErrInvalid)
	case bad:
		return fmt.Errorf("%w: mount flag %q is not allowed: %s", backend.ErrInvalid, flag, reason)
	case value == "panic":
		return fmt.Errorf("%w: mount flag %q is not allowed: it would take the machine down", backend.ErrInvalid, flag)
	case slices.Contains(userspace, flag):
		return nil
	}
	if attribute, known := attributes[flag]; known {
		if attribute != "" && !slices.Contains(f.Attributes, attribute) {
			f.Attributes = append(f.Attributes, attribute)
		}
		return nil
	}
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	f.Options = append(f.Options, Option{Key: key, Value: value, HasValue: hasValue})
	return nil
}

// splitQuoted splits at commas outside double quotes.
func splitQuoted(text string) []string {
	quoted := false
	var parts []string
	start := 0
	for i, r := range text {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ',' && !quoted:
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}
