package cli

import (
	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/host"
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

// inlineConfig are the flags of a process that asks the rules itself.
type inlineConfig struct {
	inlineFlags
	setReadOnly bool
}

func (c *inlineConfig) bind(flags *pflag.FlagSet) {
	c.inlineFlags.bind(flags, false)
	flags.BoolVar(&c.setReadOnly, "inline-set-read-only", false, "make inline volumes read-only whose drivers ask for it (label "+inline.ReadOnlyLabel+"), instead of refusing the pod")
}

// set makes a host apply the rules, with audited violations in its log.
func (c *inlineConfig) set(options *host.Options) error {
	logger := options.Logger
	rules, err := c.rules(func(f inline.Finding) {
		logger.Info("inline volume", "mode", f.Mode, "rule", f.Rule, "volume", f.Volume, "driver", f.Driver, "finding", f.Message)
	})
	if err != nil {
		return err
	}
	options.Admit = rules.Admit
	if c.setReadOnly {
		options.Mutate = rules.Mutate
	}
	return nil
}
