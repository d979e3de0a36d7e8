package ec2emu

import (
	"testing"
	"time"
)

func TestThrottling_bucketOfACall(t *testing.T) {
	for name, c := range map[string]struct {
		throttling Throttling
		action     string
		unfiltered bool
		name       string
		bucket     Bucket
		limited    bool
	}{
		"none":                        {Throttling{}, "CreateVolume", false, "", Bucket{}, false},
		"published":                   {Throttling{Preset: Default}, "CreateVolume", false, "CreateVolume", Bucket{100, 5}, true},
		"attach":                      {Throttling{Preset: Default}, "AttachVolume", false, "AttachVolume", Bucket{50, 5}, true},
		"tags":                        {Throttling{Preset: Default}, "CreateTags", false, "CreateTags", Bucket{100, 10}, true},
		"describe":                    {Throttling{Preset: Default}, "DescribeVolumes", false, "DescribeVolumes", Bucket{100, 20}, true},
		"describe of everything":      {Throttling{Preset: Default}, "DescribeVolumes", true, "DescribeVolumes.unfiltered", Bucket{50, 10}, true},
		"describe without small twin": {Throttling{Preset: Default}, "DescribeTags", true, "DescribeTags", Bucket{100, 20}, true},
		"a tenth":                     {Throttling{Preset: Tight}, "AttachVolume", false, "AttachVolume", Bucket{5, 0.5}, true},
		"during a storm":              {Throttling{Preset: Storm}, "AttachVolume", false, "AttachVolume", Bucket{10, 1}, true},
		"one bucket for all changes":  {Throttling{Preset: Default, Mode: Shared}, "AttachVolume", false, "changing", Bucket{200, 10}, true},
		"one for all describes":       {Throttling{Preset: Default, Mode: Shared}, "DescribeTags", false, "describing", Bucket{100, 20}, true},
		"replaced":                    {Throttling{Buckets: map[string]Bucket{"AttachVolume": {1, 2}}}, "AttachVolume", false, "AttachVolume", Bucket{1, 2}, true},
		"replaced by none": {Throttling{Preset: Default, Buckets: map[string]Bucket{"AttachVolume": {}}}, "AttachVolume", false,
			"AttachVolume", Bucket{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, bucket, limited := c.throttling.bucket(c.action, c.unfiltered)
			if limited != c.limited || limited && (got != c.name || bucket != c.bucket) {
				t.Errorf("charged to %q %+v (limited: %v), want %q %+v (%v)", got, bucket, limited, c.name, c.bucket, c.limited)
			}
		})
	}
}

func TestBuckets_giveWhatIsInThemAndWhatComesBack(t *testing.T) {
	var b buckets
	limit := Bucket{Burst: 50, Refill: 5}
	now := time.Unix(0, 0)
	taken := 0
	for range 100 {
		if b.take("x", limit, now) {
			taken++
		}
	}
	if taken != 50 {
		t.Errorf("%d calls at once got a token, want 50", taken)
	}
	for range 600 { // a client that asks ten times a second for a minute
		now = now.Add(100 * time.Millisecond)
		if b.take("x", limit, now) {
			taken++
		}
	}
	if want := 50 + 5*60; taken != want {
		t.Errorf("%d calls in a minute got a token, want %d", taken, want)
	}
	if !b.take("y", limit, now) {
		t.Error("another bucket is empty too")
	}
	b.fill()
	if !b.take("x", limit, now) {
		t.Error("the bucket is empty after it was filled")
	}
}
