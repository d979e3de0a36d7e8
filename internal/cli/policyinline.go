package cli

import (
	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/policy/inline"
)

// inlineFlags are the settings of the rules of inline volumes.
type inlineFlags struct {
	lists    [3]string // in the order of inline.Modes
	profiles bool
	exempt   []string
}

// bind adds the flags. profiles is the default of one that wants labels first.
func (f *inlineFlags) bind(flags *pflag.FlagSet, profiles bool) {
	for i, mode := range inline.Modes() {
		flags.StringVar(&f.lists[i], "inline-"+string(mode), "*",
			"`DRIVER,...` that pods may use inline in namespaces without the annotation "+inline.ListPrefix+string(mode)+"; * is all")
	}
	flags.BoolVar(&f.profiles, "inline-profiles", profiles,
		"compare inline profiles of drivers with Pod Security levels of namespaces: without labels a driver is privileged and a namespace restricted")
	flags.StringArrayVar(&f.exempt, "inline-exempt", nil, "`NAMESPACE` that the rules of inline volumes leave alone; may be repeated")
}

// rules makes the rules; audit may be nil.
func (f *inlineFlags) rules(audit func(inline.Finding)) (*inline.Policy, error) {
	o := inline.Options{Defaults: map[inline.Mode]string{}, Profiles: f.profiles, Exempt: f.exempt, Audit: audit}
	for i, mode := range inline.Modes() {
		o.Defaults[mode] = f.lists[i]
	}
	rules, err := inline.New(o)
	if err != nil {
		return nil, usageErrorf("--inline-…: %w", err)
	}
	return rules, nil
}
