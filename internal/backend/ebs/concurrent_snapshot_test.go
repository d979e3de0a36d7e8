package ebs

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// A snapshot that EC2 takes slowly or throttles does not block attaching the volume,
// detaching it, or taking another snapshot of it.
func TestCreateSnapshot_blocksNoOtherCallOfTheVolume(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		id, node := s.volume(p, "pvc-1"), s.node()
		s.slowly("CreateSnapshot", 20*time.Second)
		done := make(chan error, 2)
		for _, name := range []string{"snap-a", "snap-b"} {
			go func() {
				_, err := p.CreateSnapshot(s.Context(), backend.SnapshotSpec{Name: name, SourceID: id})
				done <- err
			}()
		}
		time.Sleep(15 * time.Second)
		_, err := p.Attach(s.Context(), id, node, forOneNode)
		s.must(err)
		s.must(p.Detach(s.Context(), id, node))
		s.want(p.DeleteVolume(s.Context(), id), backend.ErrBusy, "deleted while it is snapshot")
		if err := errors.Join(<-done, <-done); err != nil {
			s.Error(err)
		}
	})
}
