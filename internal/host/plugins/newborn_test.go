package plugins

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestIsNewborn_survivesAClockThatWasSetBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for age, want := range map[time.Duration]bool{0: true, time.Hour: false, -time.Hour: false} {
		made := time.Now().Add(-age)
		if err := os.Chtimes(path, made, made); err != nil {
			t.Fatal(err)
		}
		if got := isNewborn(path); got != want {
			t.Errorf("a socket of an age of %v is newborn: %t", age, got)
		}
	}
	if isNewborn(path + "2") {
		t.Error("one that is not there is newborn")
	}
}

// The socket came after the last attempt and before the watch.
func TestAppears_doesNotMissAnEarlierEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "csi.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !appears(ctx, path, time.Hour) {
		t.Error("it was waited for an hour")
	}
}
