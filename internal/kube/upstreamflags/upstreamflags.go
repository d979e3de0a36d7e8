// Package upstreamflags lets `holdfast sidecars` accept the command lines of the
// sidecars that it replaces, and `holdfast driver` that of the AWS EBS CSI driver. A flag
// that Holdfast has under another name sets that flag. A flag without a meaning in
// Holdfast is ignored, with a warning that gives the reason. Flags of the same name need
// no entry.
package upstreamflags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Set is the upstream flags of one command line.
type Set struct {
	flags    *pflag.FlagSet
	warnings []string
}

// Bind adds the flags of the sidecars, hidden from the help, to those of a command.
// Call it after the command's own flags are declared: it skips names that exist.
func Bind(flags *pflag.FlagSet) *Set { return bind(flags, entries()) }

// BindEBSDriver does the same with the flags of the AWS EBS CSI driver.
func BindEBSDriver(flags *pflag.FlagSet) *Set { return bind(flags, ofEBSDriver()) }

func bind(flags *pflag.FlagSet, table []entry) *Set {
	set := &Set{flags: flags}
	for _, e := range table {
		for _, name := range e.names() {
			set.bind(name, e)
		}
	}
	return set
}

func (s *Set) bind(name string, e entry) {
	if s.flags.Lookup(name) != nil {
		return
	}
	flag := s.flags.VarPF(&value{set: s, name: name, entry: e}, name, s.shorthand(e), e.usage())
	flag.Hidden = true
	if e.boolean {
		flag.NoOptDefVal = "true" // --flag alone
	}
}

// shorthand is that of an entry unless it is taken: klog's -v=5.
func (s *Set) shorthand(e entry) string {
	if e.shorthand == "" || s.flags.ShorthandLookup(e.shorthand) != nil {
		return ""
	}
	return e.shorthand
}

// Doubled spells the long flags of a command line with two dashes: the
// sidecars' own parser takes one as well, and their manifests make use of it
// (-csi-address=/csi/csi.sock).
func Doubled(flags *pflag.FlagSet, arguments []string) []string {
	spelled := slices.Clone(arguments)
	for i, argument := range spelled {
		if argument == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(argument, "-"), "=")
		if len(name) > 1 && name[0] != '-' && argument[0] == '-' && flags.Lookup(name) != nil {
			spelled[i] = "-" + argument
		}
	}
	return spelled
}

// Warnings returns the warnings about the upstream flags of the parsed command line,
// in their order.
func (s *Set) Warnings() []string { return slices.Clone(s.warnings) }

// value is one upstream flag.
type value struct {
	set  *Set
	name string
	entry
	text string
}

// Set takes the flag's value.
func (v *value) Set(text string) error {
	v.text = text
	if v.refuse != nil {
		if err := v.refuse(text); err != nil {
			return err
		}
	}
	text, err := v.setGates(text)
	if err != nil {
		return err
	}
	if v.target == "" {
		if !slices.Contains(v.silent, text) {
			v.set.warn(fmt.Sprintf("--%s=%s is ignored: %s", v.name, text, v.why))
		}
		return nil
	}
	if v.convert != nil {
		converted, err := v.convert(text)
		if err != nil || converted == "" {
			return err
		}
		text = converted
	}
	return v.set.flags.Set(v.target, text)
}

// setGates sets the own flags of feature gates, and returns the other gates of the list.
func (v *value) setGates(text string) (others string, err error) {
	if v.gates == nil {
		return text, nil
	}
	var left []string
	for gate := range strings.SplitSeq(text, ",") {
		name, on, _ := strings.Cut(gate, "=")
		target, known := v.gates[strings.TrimSpace(name)]
		if !known {
			left = append(left, gate)
		} else if err := v.set.flags.Set(target, strings.TrimSpace(on)); err != nil {
			return "", fmt.Errorf("gate %s: %w", name, err)
		}
	}
	return strings.Join(left, ","), nil
}

func (s *Set) warn(text string) {
	if !slices.Contains(s.warnings, text) {
		s.warnings = append(s.warnings, text)
	}
}

// String is the value that was given.
func (v *value) String() string { return v.text }

// Type is for the help.
func (v *value) Type() string {
	if v.boolean {
		return "bool"
	}
	return "string"
}
