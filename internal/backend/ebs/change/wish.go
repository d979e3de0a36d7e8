package change

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Wish is what shall be of a volume; zero fields stay as they are.
type Wish struct {
	Size       int32 // GiB
	Type       string
	IOPS       int32
	IOPSPerGB  int32
	Throughput int32 // MiB/s
	// KeepRatio has IOPS follow IOPSPerGB when the volume grows.
	KeepRatio *bool
	Tags      map[string]string
	Untag     []string // keys
}

// merge joins two wishes in every field. The error says in what they
// contradict each other.
func merge(a, b Wish) (Wish, error) {
	var m merger
	merged := Wish{
		Size:       either(&m, "size", a.Size, b.Size),
		Type:       either(&m, "type", a.Type, b.Type),
		IOPS:       either(&m, "iops", a.IOPS, b.IOPS),
		IOPSPerGB:  either(&m, "iopsPerGB", a.IOPSPerGB, b.IOPSPerGB),
		Throughput: either(&m, "throughput", a.Throughput, b.Throughput),
		KeepRatio:  a.KeepRatio,
		Tags:       maps.Clone(a.Tags),
		Untag:      slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.Untag, b.Untag)))),
	}
	if b.KeepRatio != nil {
		if a.KeepRatio != nil && *a.KeepRatio != *b.KeepRatio {
			m.contradict("allowAutoIOPSIncreaseOnModify", *a.KeepRatio, *b.KeepRatio)
		}
		merged.KeepRatio = b.KeepRatio
	}
	if merged.IOPS != 0 && merged.IOPSPerGB != 0 {
		m.contradict("iops and iopsPerGB", merged.IOPS, merged.IOPSPerGB)
	}
	for key, value := range b.Tags {
		if had, ok := merged.Tags[key]; ok && had != value {
			m.contradict("tag "+key, had, value)
		}
		if merged.Tags == nil {
			merged.Tags = map[string]string{}
		}
		merged.Tags[key] = value
	}
	for _, key := range merged.Untag {
		if value, set := merged.Tags[key]; set {
			m.contradict("tag "+key, "removed", value)
		}
	}
	return merged, m.err()
}

// merger collects contradictions.
type merger struct{ found []string }

func (m *merger) contradict(what string, a, b any) {
	m.found = append(m.found, fmt.Sprintf("%s: %v and %v", what, a, b))
}

func (m *merger) err() error {
	if len(m.found) == 0 {
		return nil
	}
	slices.Sort(m.found)
	return fmt.Errorf("they contradict each other in %s", strings.Join(m.found, "; "))
}

func either[T comparable](m *merger, what string, a, b T) T {
	var zero T
	switch {
	case a == zero:
		return b
	case b != zero && a != b:
		m.contradict(what, a, b)
	}
	return a
}

// modifies reports whether more than tags is wished for.
func (w Wish) modifies() bool {
	return w.Size != 0 || w.Type != "" || w.IOPS != 0 || w.IOPSPerGB != 0 || w.Throughput != 0
}

// equal reports whether two wishes are the same.
func (w Wish) equal(o Wish) bool {
	return w.Size == o.Size && w.Type == o.Type && w.IOPS == o.IOPS && w.IOPSPerGB == o.IOPSPerGB && w.Throughput == o.Throughput &&
		(w.KeepRatio == nil) == (o.KeepRatio == nil) && (w.KeepRatio == nil || *w.KeepRatio == *o.KeepRatio) &&
		maps.Equal(w.Tags, o.Tags) && slices.Equal(slices.Sorted(slices.Values(w.Untag)), slices.Sorted(slices.Values(o.Untag)))
}

// String gives the wish as messages have it.
func (w Wish) String() string {
	var parts []string
	say := func(is bool, format string, value any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	say(w.Size != 0, "%d GiB", w.Size)
	say(w.Type != "", "type %s", w.Type)
	say(w.IOPS != 0, "%d IOPS", w.IOPS)
	say(w.IOPSPerGB != 0, "%d IOPS per GiB", w.IOPSPerGB)
	say(w.Throughput != 0, "%d MiB/s", w.Throughput)
	if w.KeepRatio != nil {
		say(true, "allowAutoIOPSIncreaseOnModify %t", *w.KeepRatio)
	}
	for _, key := range slices.Sorted(maps.Keys(w.Tags)) {
		parts = append(parts, "tag "+key+"="+w.Tags[key])
	}
	for _, key := range w.Untag {
		parts = append(parts, "no tag "+key)
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
