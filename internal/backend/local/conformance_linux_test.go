package local

import (
	"os"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend/backendtest"
)

// Each rule has its own pool, on a filesystem that it shares with the other rules: a
// removed pool must not affect the next one.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, disk := range map[string]func(testing.TB) string{
		"ext4":  func(t testing.TB) string { return disk(t, "ext4", 2*gibibyte) },
		"xfs":   func(t testing.TB) string { return disk(t, "xfs", 2*gibibyte) },
		"btrfs": func(t testing.TB) string { return disk(t, "btrfs", 2*gibibyte) },
	} {
		for _, provisioning := range []string{thin, thick} {
			t.Run(name+" "+provisioning, func(t *testing.T) {
				t.Parallel()
				base := disk(t)
				backendtest.Run(t, func(t *testing.T) backendtest.Subject {
					dir, err := os.MkdirTemp(base, "pool-") //nolint:usetesting // on the filesystem under test
					must(t, err)
					t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
					return subject(t, dir, provisioning)
				})
			})
		}
	}
}

func subject(t *testing.T, dir, provisioning string) backendtest.Subject {
	t.Helper()
	other := map[string]string{thin: thick, thick: thin}
	var pool *Pool
	var s backendtest.Subject
	s.Reopen = func(t *testing.T) backendtest.Subject {
		if pool != nil {
			shut(t, pool)
		}
		pool = open(t, Options{Pool: dir})
		s.Controller, s.Node = pool.Controller(), pool.Node()
		return s
	}
	s.Parameters = map[string]string{parameterProvisioning: provisioning}
	s.OtherMutable = map[string]string{parameterProvisioning: other[provisioning]}
	return s.Reopen(t)
}
