package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/policy/inline"
)

// inlineFlags are those of the rules of inline volumes.
type inlineFlags struct {
	on         bool
	kubeconfig string
	lists      [3]string // in the order of inline.Modes
	profiles   bool
	exempt     []string
}

func (f *inlineFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "inline", false, "serve the rules of inline volumes, too")
	for i, mode := range inline.Modes() {
		flags.StringVar(&f.lists[i], "inline-"+string(mode), "*",
			"`DRIVER,...` that pods may use inline in namespaces without the annotation "+inline.ListPrefix+string(mode)+"; * is all")
	}
	flags.BoolVar(&f.profiles, "inline-profiles", true, "compare profiles of drivers with Pod Security levels of namespaces; what has no label is privileged there, restricted here")
	flags.StringArrayVar(&f.exempt, "inline-exempt", nil, "`NAMESPACE` that the rules of inline volumes leave alone; may be repeated")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` with the way to the API server, for --inline (default: that of the pod)")
}

// rules are nil when they are not asked for.
func (f *inlineFlags) rules() (*inline.Policy, error) {
	if !f.on {
		return nil, nil
	}
	o := inline.Options{Defaults: map[inline.Mode]string{}, Profiles: f.profiles, Exempt: f.exempt}
	for i, mode := range inline.Modes() {
		o.Defaults[mode] = strings.TrimSpace(f.lists[i])
	}
	rules, err := inline.New(o)
	if err != nil {
		return nil, usageErrorf("--inline: %w", err)
	}
	return rules, nil
}
