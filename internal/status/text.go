package status

import (
	"fmt"
	"time"

	human "k8s.io/apimachinery/pkg/util/duration"
)

// Duration is exact enough to compare, and short.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Age is how long ago something was, as kubectl has it.
func Age(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return human.HumanDuration(max(0, now.Sub(at)))
}
