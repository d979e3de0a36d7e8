package params

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/volumetype"
)

// reader reads values from a map of parameters. It collects the errors, and the keys
// that were read.
type reader struct {
	given map[string]string
	how   Reading
	taken []string
	wrong []error
	notes []string // what a lenient reading changed
}

func (r *reader) refuse(key, must string) {
	r.wrong = append(r.wrong, fmt.Errorf("%w: %s %q: it must be %s", backend.ErrInvalid, key, r.given[key], must))
}

func (r *reader) take(key string) (string, bool) {
	r.taken = append(r.taken, key)
	value, set := r.given[key]
	return value, set
}

func (r *reader) ignore(keys ...string) { r.taken = append(r.taken, keys...) }

// text returns a value that must not be empty; "" if it is not set.
func (r *reader) text(key string) string {
	value, set := r.take(key)
	if set && value == "" {
		r.refuse(key, "given a value, or left out")
	}
	return value
}

// number returns a whole number above 0; 0 if it is not set.
func (r *reader) number(key string) int32 {
	return r.within(key, volumetype.Interval{Least: 1, Most: math.MaxInt32})
}

func (r *reader) within(key string, allowed volumetype.Interval) int32 {
	value, set := r.take(key)
	if !set {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < int64(allowed.Least) || n > int64(allowed.Most) {
		r.refuse(key, "a whole number from "+allowed.String())
		return 0
	}
	return int32(n)
}

// truth returns true or false. Other values are rejected: a class with "yes" for
// encrypted must not result in a volume without encryption. A lenient reading accepts the
// usual spellings of both, see meaning.
func (r *reader) truth(key string) (value, set bool) {
	text, set := r.take(key)
	switch {
	case !set:
	case strings.EqualFold(text, "true"):
		return true, true
	case strings.EqualFold(text, "false"):
	case r.how == Lenient:
		return r.meaning(key, text), set
	default:
		r.refuse(key, `"true" or "false"`)
	}
	return false, set
}

// prefixed returns the values of all keys with a prefix, in the order of the keys.
func (r *reader) prefixed(prefix string, given map[string]string) []string {
	var values []string
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if strings.HasPrefix(key, prefix) {
			r.taken = append(r.taken, key)
			values = append(values, given[key])
		}
	}
	return values
}

// done returns the errors, unknown keys last.
func (r *reader) done() error {
	for _, key := range slices.Sorted(maps.Keys(r.given)) {
		if !slices.Contains(r.taken, key) {
			r.wrong = append(r.wrong, fmt.Errorf("%w: parameter %q is not known", backend.ErrInvalid, key))
		}
	}
	return errors.Join(r.wrong...)
}
