// Package logformat makes the handlers of every log that this project writes,
// so that a field has one form in all of them: a duration is a number of
// seconds, and its name ends with _seconds.
package logformat

import (
	"io"
	"log/slog"
	"strings"
	"time"
)

// secondsSuffix is the unit in the name of a duration.
const secondsSuffix = "_seconds"

// Text writes lines of key=value for people.
func Text(w io.Writer, options slog.HandlerOptions) slog.Handler {
	return slog.NewTextHandler(w, withSeconds(options))
}

// JSON writes one object a line.
func JSON(w io.Writer, options slog.HandlerOptions) slog.Handler {
	return slog.NewJSONHandler(w, withSeconds(options))
}

// withSeconds applies the options' own rule first.
func withSeconds(options slog.HandlerOptions) *slog.HandlerOptions {
	own := options.ReplaceAttr
	options.ReplaceAttr = func(groups []string, attribute slog.Attr) slog.Attr {
		if own != nil {
			attribute = own(groups, attribute)
		}
		return seconds(attribute)
	}
	return &options
}

// seconds renders a duration in seconds, to the microsecond: a bare integer of
// nanoseconds, which slog writes to JSON, does not say its unit.
func seconds(attribute slog.Attr) slog.Attr {
	if attribute.Value.Kind() != slog.KindDuration {
		return attribute
	}
	name := strings.TrimSuffix(attribute.Key, secondsSuffix) + secondsSuffix
	return slog.Float64(name, attribute.Value.Duration().Round(time.Microsecond).Seconds())
}
