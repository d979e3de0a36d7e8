package world

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Span is a duration that reads as text in JSON: "1.5s".
type Span time.Duration

// MarshalText writes a duration as time.Duration does.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = Span(d)
	return err
}

// Takes is how long a transition takes: a fixed time, any time of a range, or a time with
// a log-normal distribution, like the completion times of a large service. The zero value
// means no time.
//
// As text: "2s", "1s..3s" for the range, "2s~0.5" for a median and the sigma of
// the logarithm.
type Takes struct {
	min, max time.Duration
	sigma    float64 // with min as median when above 0
}

// Fixed takes d every time.
func Fixed(d time.Duration) Takes { return Takes{min: d, max: d} }

// Uniform takes any time from shortest to longest.
func Uniform(shortest, longest time.Duration) Takes { return Takes{min: shortest, max: longest} }

// LogNormal takes the median or less in one of two cases; sigma is the standard
// deviation of the logarithm. Times above twenty medians are not drawn.
func LogNormal(median time.Duration, sigma float64) Takes {
	return Takes{min: median, max: 20 * median, sigma: sigma}
}

func (t Takes) pick(random *rand.Rand) time.Duration {
	switch {
	case t.sigma > 0:
		factor := math.Exp(t.sigma * random.NormFloat64())
		return min(time.Duration(float64(t.min)*factor), t.max)
	case t.max > t.min:
		return t.min + time.Duration(random.Int64N(int64(t.max-t.min)+1))
	}
	return t.min
}

// MarshalText writes it as UnmarshalText reads it.
func (t Takes) MarshalText() ([]byte, error) {
	switch {
	case t.sigma > 0:
		return fmt.Appendf(nil, "%v~%v", t.min, t.sigma), nil
	case t.max > t.min:
		return fmt.Appendf(nil, "%v..%v", t.min, t.max), nil
	}
	return []byte(t.min.String()), nil
}

// UnmarshalText reads "2s", "1s..3s" or "2s~0.5".
func (t *Takes) UnmarshalText(text []byte) (err error) {
	from, to, isRange := strings.Cut(string(text), "..")
	median, sigma, isLog := strings.Cut(string(text), "~")
	switch {
	case isRange:
		*t, err = parseRange(from, to)
	case isLog:
		*t, err = parseLogNormal(median, sigma)
	default:
		var d time.Duration
		d, err = time.ParseDuration(string(text))
		*t = Fixed(d)
	}
	if err == nil && t.min < 0 {
		err = errors.New("must not be negative")
	}
	if err != nil {
		return fmt.Errorf("time %q: %w; want 2s, 1s..3s or 2s~0.5", text, err)
	}
	return nil
}

func parseRange(from, to string) (Takes, error) {
	shortest, err := time.ParseDuration(from)
	if err != nil {
		return Takes{}, err
	}
	longest, err := time.ParseDuration(to)
	if err == nil && longest < shortest {
		err = errors.New("the range ends before it begins")
	}
	return Uniform(shortest, longest), err
}

func parseLogNormal(median, sigma string) (Takes, error) {
	m, err := time.ParseDuration(median)
	if err != nil {
		return Takes{}, err
	}
	s, err := strconv.ParseFloat(sigma, 64)
	if err == nil && (s <= 0 || s > 3) {
		err = errors.New("sigma must be above 0 and at most 3")
	}
	return LogNormal(m, s), err
}
