package logformat

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestHandlers_writeDurationsInSeconds(t *testing.T) {
	log := func(handler slog.Handler) {
		slog.New(handler).With("uptime", time.Minute).Info("call",
			slog.Duration("duration", 1500*time.Microsecond), slog.Any("pause", 2*time.Second), slog.Duration("wait_seconds", time.Second),
			slog.Group("driver", slog.Duration("took", 250*time.Nanosecond)), slog.Int("attempts", 3))
	}
	var text, lines bytes.Buffer
	log(Text(&text, slog.HandlerOptions{}))
	log(JSON(&lines, slog.HandlerOptions{}))
	for _, want := range []string{"uptime_seconds=60 ", "duration_seconds=0.0015 ", "pause_seconds=2 ", "wait_seconds=1 ", "driver.took_seconds=0 ", "attempts=3"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in %s", want, &text)
		}
	}
	var written map[string]any
	if err := json.Unmarshal(lines.Bytes(), &written); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"uptime_seconds": 60, "duration_seconds": 0.0015, "pause_seconds": 2, "wait_seconds": 1, "attempts": 3} {
		if written[name] != want {
			t.Errorf("%s is %v; want %v", name, written[name], want)
		}
	}
	if _, has := written["duration"]; has {
		t.Errorf("the duration is there without its unit, too: %s", &lines)
	}
}

func TestHandlers_keepTheRuleThatIsGiven(t *testing.T) {
	var out bytes.Buffer
	drop := func(_ []string, attribute slog.Attr) slog.Attr {
		if attribute.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return attribute
	}
	slog.New(Text(&out, slog.HandlerOptions{ReplaceAttr: drop, Level: slog.LevelWarn})).Warn("late", "waited", time.Second)
	if got := out.String(); got != "level=WARN msg=late waited_seconds=1\n" {
		t.Errorf("got %q", got)
	}
}
