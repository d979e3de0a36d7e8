package local

import (
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend/backendtest"
)

func TestConformance(t *testing.T) {
	for name, dir := range map[string]func(testing.TB) string{
		"ext4":  func(t testing.TB) string { return disk(t, "ext4", 2*gibibyte) },
		"xfs":   func(t testing.TB) string { return disk(t, "xfs", 2*gibibyte) },
		"btrfs": func(t testing.TB) string { return disk(t, "btrfs", 2*gibibyte) },
		"plain": poolDir,
	} {
		for _, provisioning := range []string{thin, thick} {
			t.Run(name+" "+provisioning, func(t *testing.T) {
				backendtest.Run(t, func(t *testing.T) backendtest.Subject {
					return subject(t, dir(t), provisioning)
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
