package usage

import (
	"math"
	"testing"
	"time"
)

func at(minutes int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(minutes) * time.Minute) }

func TestSecondsToFull(t *testing.T) {
	for name, c := range map[string]struct {
		samples   []sample
		available int64
		want      float64
		known     bool
	}{
		"nothing is known":                 {nil, 100, 0, false},
		"one sample":                       {[]sample{{at(0), 5}}, 100, 0, false},
		"too short a time":                 {[]sample{{at(0), 0}, {at(9), 50}}, 100, 0, false},
		"10 bytes a minute":                {[]sample{{at(0), 0}, {at(10), 100}}, 200, 20 * 60, true},
		"the ends count":                   {[]sample{{at(0), 0}, {at(5), 900}, {at(10), 100}}, 200, 20 * 60, true},
		"it does not grow":                 {[]sample{{at(0), 50}, {at(20), 50}}, 200, math.Inf(1), true},
		"it shrinks":                       {[]sample{{at(0), 50}, {at(20), 10}}, 200, math.Inf(1), true},
		"it is full":                       {[]sample{{at(0), 0}, {at(10), 100}}, 0, 0, true},
		"more is used than there may be":   {[]sample{{at(0), 0}, {at(10), 100}}, -5, 0, true},
		"full and not growing is no worse": {[]sample{{at(0), 7}, {at(10), 7}}, 0, math.Inf(1), true},
	} {
		got, known := secondsToFull(c.samples, c.available)
		if got != c.want || known != c.known {
			t.Errorf("%s: %v, %t; want %v, %t", name, got, known, c.want, c.known)
		}
	}
}

// A day of scrapes is a few hundred samples, the first a day ago and the last of now.
func TestGrowth_isBoundedAndRemembersADay(t *testing.T) {
	var g growth
	for minute := range 3 * 24 * 60 {
		g.add(sample{at(minute), int64(minute)})
	}
	if n := len(g.samples); n < 280 || n > 300 {
		t.Errorf("%d samples", n)
	}
	first, last := g.samples[0], g.samples[len(g.samples)-1]
	if last.used != 3*24*60-1 {
		t.Errorf("the last sample is %+v", last)
	}
	if span := last.at.Sub(first.at); span > horizon+spacing || span < horizon-2*spacing {
		t.Errorf("the samples span %s", span)
	}
	for i := 2; i < len(g.samples); i++ {
		if d := g.samples[i-1].at.Sub(g.samples[i-2].at); d < spacing {
			t.Fatalf("samples %d and %d are %s apart", i-2, i-1, d)
		}
	}
}
