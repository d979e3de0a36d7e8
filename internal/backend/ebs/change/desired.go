package change

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Desired is the state that a call requests for a volume; zero fields stay.
type Desired struct {
	Size       int32 // GiB
	Type       string
	IOPS       int32
	IOPSPerGB  int32
	Throughput int32 // MiB/s
	// Lenient brings IOPS within what the type and the size allow, instead of failing.
	Lenient bool
	// KeepRatio has IOPS follow IOPSPerGB when the volume grows.
	KeepRatio *bool
	Tags      map[string]string
	Untag     []string // keys
}

// merge combines two desired states in every field. The error names the fields in
// which they contradict each other.
func merge(a, b Desired) (Desired, error) {
	var m merger
	merged := Desired{
		Size:       either(&m, "size", a.Size, b.Size),
		Type:       either(&m, "type", a.Type, b.Type),
		IOPS:       either(&m, "iops", a.IOPS, b.IOPS),
		IOPSPerGB:  either(&m, "iopsPerGB", a.IOPSPerGB, b.IOPSPerGB),
		Throughput: either(&m, "throughput", a.Throughput, b.Throughput),
		Lenient:    a.Lenient || b.Lenient,
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

// modifies reports whether more than tags changes.
func (d Desired) modifies() bool {
	return d.Size != 0 || d.Type != "" || d.IOPS != 0 || d.IOPSPerGB != 0 || d.Throughput != 0
}

// equal reports whether two desired states are the same.
func (d Desired) equal(o Desired) bool {
	return d.Size == o.Size && d.Type == o.Type && d.IOPS == o.IOPS && d.IOPSPerGB == o.IOPSPerGB && d.Throughput == o.Throughput &&
		(d.KeepRatio == nil) == (o.KeepRatio == nil) && (d.KeepRatio == nil || *d.KeepRatio == *o.KeepRatio) &&
		maps.Equal(d.Tags, o.Tags) &&
		slices.Equal(slices.Sorted(slices.Values(d.Untag)), slices.Sorted(slices.Values(o.Untag)))
}

// String returns the desired state for messages.
func (d Desired) String() string {
	var parts []string
	add := func(set bool, format string, value any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add(d.Size != 0, "%d GiB", d.Size)
	add(d.Type != "", "type %s", d.Type)
	add(d.IOPS != 0, "%d IOPS", d.IOPS)
	add(d.IOPSPerGB != 0, "%d IOPS per GiB", d.IOPSPerGB)
	add(d.Throughput != 0, "%d MiB/s", d.Throughput)
	if d.KeepRatio != nil {
		add(true, "allowAutoIOPSIncreaseOnModify %t", *d.KeepRatio)
	}
	for _, key := range slices.Sorted(maps.Keys(d.Tags)) {
		parts = append(parts, "tag "+key+"="+d.Tags[key])
	}
	for _, key := range d.Untag {
		parts = append(parts, "no tag "+key)
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
