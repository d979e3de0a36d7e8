package usage

import (
	"math"
	"time"
)

const (
	// horizon is the time whose growth is taken for that of the future.
	horizon = 24 * time.Hour
	// spacing is the distance of the samples that are kept.
	spacing = 5 * time.Minute
	// leastSpan is how much must be known before there is a forecast.
	leastSpan = 10 * time.Minute
)

// sample is the use of a pool at a time, in bytes.
type sample struct {
	at   time.Time
	used int64
}

// growth remembers how full a pool was in the last day, in memory only.
type growth struct{ samples []sample }

// add notes the use of now. Between the samples that are kept only the last is current.
func (g *growth) add(now sample) {
	for len(g.samples) > 1 && now.at.Sub(g.samples[0].at) > horizon {
		g.samples = g.samples[1:]
	}
	if n := len(g.samples); n > 1 && g.samples[n-1].at.Sub(g.samples[n-2].at) < spacing {
		g.samples[n-1] = now
		return
	}
	g.samples = append(g.samples, now)
}

// secondsToFull returns when so many available bytes will be used if the pool grows on as
// it did in the samples: +Inf if it does not grow. There is no answer before leastSpan.
func secondsToFull(samples []sample, available int64) (seconds float64, ok bool) {
	if len(samples) < 2 {
		return 0, false
	}
	first, last := samples[0], samples[len(samples)-1]
	span := last.at.Sub(first.at)
	if span < leastSpan {
		return 0, false
	}
	grown := last.used - first.used
	if grown <= 0 {
		return math.Inf(1), true
	}
	return float64(max(available, 0)) / float64(grown) * span.Seconds(), true
}
