package mount

import (
	"errors"
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

// Flags are the mount flags of a request: those of the mount and those of the filesystem.
type Flags struct {
	// Attributes are the names of properties of the one mount: ro, nosuid,
	// nodev, noexec, nosymfollow, noatime, nodiratime, strictatime.
	Attributes []string
	// Options go to the filesystem, unchecked: the kernel knows which exist.
	Options []Option
}

// ReadOnly reports whether the flags contain ro.
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

// valueless are the names that take no value, next to the attributes: the kernel
// applies some of them with any value (fs/fs_context.c,
// vfs_parse_sb_flag), so rw=x would be rw.
var valueless = []string{"defaults", "_netdev", "nofail", "sync", "async", "dirsync", "lazytime",
	"nolazytime", "mand", "nomand"}

// withCommas are the options of SELinux, whose values contain commas.
var withCommas = []string{"context", "fscontext", "defcontext", "rootcontext"}

// userspace flags mean something to mount(8) and fstab(5) only and nothing here.
var userspace = []string{"defaults", "_netdev", "nofail"}

// refused flags change the source or the target of the mount, or reach another device;
// the reason is in the error.
var refused = map[string]string{
	"remount": "it changes an existing mount", "bind": "the driver chooses the source",
	"rbind": "the driver chooses the source", "move": "the driver chooses the source",
	"loop": "the driver attaches devices", "offset": "the driver attaches devices",
	"sizelimit": "the driver attaches devices",
	"source":    "the driver attaches devices", "device": "it names another device",
	"logdev": "it names another device", "rtdev": "it names another device",
	"journal_dev": "it names another device", "journal_path": "it names another device",
	"shared": "propagation belongs to the node", "rshared": "propagation belongs to the node",
	"private": "propagation belongs to the node", "rprivate": "propagation belongs to the node",
	"slave": "propagation belongs to the node", "rslave": "propagation belongs to the node",
	"unbindable": "propagation belongs to the node", "runbindable": "propagation belongs to the node",
}

// ParseFlags sorts mount flags. A flag may be a list with commas, as in
// fstab(5). Double quotes around a whole value are removed before the checks, so that
// they see the value that the kernel gets; a comma inside them belongs to the value
// (context="…"). ErrInvalid for flags that are dangerous, ambiguous or contradict each
// other. Whether a filesystem knows an option turns out when it is mounted.
func ParseFlags(flags []string) (Flags, error) {
	var parsed Flags
	seen := map[string]bool{}
	for _, flag := range flags {
		for _, one := range splitQuoted(flag) {
			option, err := parseOption(one)
			if err != nil {
				return Flags{}, fmt.Errorf("%w: mount flag %q: %w", backend.ErrInvalid, one, err)
			}
			parsed.add(option)
			seen[option.Key] = true
		}
	}
	for _, group := range exclusive {
		given := slices.DeleteFunc(slices.Clone(group), func(name string) bool { return !seen[name] })
		if len(given) > 1 {
			return Flags{}, fmt.Errorf("%w: mount flags %s contradict each other",
				backend.ErrInvalid, strings.Join(given, " and "))
		}
	}
	return parsed, nil
}

func (f *Flags) add(option Option) {
	if slices.Contains(userspace, option.Key) {
		return
	}
	attribute, known := attributes[option.Key]
	switch {
	case !known:
		f.Options = append(f.Options, option)
	case attribute != "" && !slices.Contains(f.Attributes, attribute):
		f.Attributes = append(f.Attributes, attribute)
	}
}

// parseOption reads one flag and returns the option as the kernel gets it.
func parseOption(flag string) (Option, error) {
	if strings.ContainsFunc(flag, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return Option{}, errors.New("it contains a control character")
	}
	var o Option
	o.Key, o.Value, o.HasValue = strings.Cut(flag, "=")
	quoted := len(o.Value) >= 2 && o.Value[0] == '"' && o.Value[len(o.Value)-1] == '"'
	if quoted {
		o.Value = o.Value[1 : len(o.Value)-1]
	}
	return o, o.check()
}

// check refuses flags that no filesystem may get.
func (o Option) check() error {
	_, attribute := attributes[o.Key]
	reason, bad := refused[o.Key]
	switch {
	case o.Key == "":
		return errors.New("it is empty or has an empty name")
	case strings.Contains(o.String(), `"`):
		return errors.New("double quotes are allowed around a whole value only; remove the others")
	case strings.Contains(o.Key, " ") || strings.TrimSpace(o.Value) != o.Value:
		return errors.New("it has spaces around its name or value; remove them")
	case strings.Contains(o.Value, ",") && !slices.Contains(withCommas, o.Key):
		return errors.New("only SELinux contexts have commas in their values; give each option by itself")
	case bad:
		return fmt.Errorf("it is not allowed: %s", reason)
	case o.HasValue && (attribute || slices.Contains(valueless, o.Key)):
		return errors.New("it takes no value")
	case o.Value == "panic":
		return errors.New("it is not allowed: it would take the machine down")
	}
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
