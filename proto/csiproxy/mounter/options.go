package mounter

import (
	"fmt"
	"strings"
)

// kind is what a source is.
type kind int

const (
	directory kind = iota
	volume
	share
)

const volumePrefix = `\\?\volume{`

func kindOf(source string) kind {
	switch {
	case strings.HasPrefix(strings.ToLower(source), volumePrefix):
		return volume
	case strings.HasPrefix(source, `\\?\`), strings.HasPrefix(source, `\\.\`):
		return directory // of a form that csi-proxy refuses, and says so
	case strings.HasPrefix(source, `\\`):
		return share
	}
	return directory
}

// options are those that mean something here.
type options struct{ username, password, domain string }

// String keeps the password out of whatever prints it.
func (o options) String() string { return "user " + o.user() }

func (o options) credentials() bool { return o != options{} }

func (o options) user() string {
	if o.domain != "" && o.username != "" {
		return o.domain + `\` + o.username
	}
	return o.username
}

func parseOptions(plain, sensitive []string) (parsed options, err error) {
	for _, text := range plain {
		if !parsed.set(text) {
			name, _, _ := strings.Cut(text, "=")
			return options{}, fmt.Errorf("%w: option %.40q; links and mounted folders have none, shares have username, password and domain", ErrUnsupported, name)
		}
	}
	for i, text := range sensitive {
		if !parsed.set(text) {
			return options{}, fmt.Errorf("%w: sensitive option %d of %d, whose name is none of username, password and domain", ErrUnsupported, i+1, len(sensitive))
		}
	}
	return parsed, nil
}

// set tells whether it knows the option. Those that only say what is the case
// anyway are fine.
func (o *options) set(text string) bool {
	name, value, hasValue := strings.Cut(text, "=")
	if !hasValue {
		switch name {
		case "bind", "rw", "defaults", "":
			return true
		}
		return false
	}
	switch strings.ToLower(name) {
	case "username", "user":
		o.username = value
	case "password", "pass":
		o.password = value
	case "domain":
		o.domain = value
	default:
		return false
	}
	return true
}
