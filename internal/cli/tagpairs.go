package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tagPairs is a flag with KEY=VALUE pairs between commas, in the syntax of the AWS EBS
// CSI driver: quotes are part of a value, as templates need them, spaces around keys
// and values are not, and empty pairs are skipped. A repeated flag adds pairs.
type tagPairs map[string]string

// String implements pflag.Value.
func (p *tagPairs) String() string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(*p)) {
		pairs = append(pairs, key+"="+(*p)[key])
	}
	return strings.Join(pairs, ",")
}

// Set implements pflag.Value.
func (p *tagPairs) Set(text string) error {
	if *p == nil {
		*p = tagPairs{}
	}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		if !found {
			return fmt.Errorf("%q is not KEY=VALUE", pair)
		}
		(*p)[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return nil
}

// Type implements pflag.Value.
func (p *tagPairs) Type() string { return "pairs" }
