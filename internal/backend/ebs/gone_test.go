package ebs

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// The attachment of a volume that is deleted while it is initialized fails with
// ErrNotFound, and does not wait for it in every repeated call.
func TestAttach_volumeDeletedWhileItIsInitialized(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		s.change(func(k *world.Knobs) { k.Times.Initialize = world.Fixed(time.Hour) })
		source := s.volume(p, "pvc-0")
		snapshot, err := p.CreateSnapshot(s.Context(), backend.SnapshotSpec{Name: "snap-a", SourceID: source})
		s.must(err)
		time.Sleep(time.Hour)
		request := creation("pvc-1")
		request.Source = backend.Source{SnapshotID: snapshot.ID}
		request.Parameters = map[string]string{"blockAttachUntilInitialized": "true"}
		v := s.create(p, request)
		node := s.node()
		began := time.Now()
		go func() {
			time.Sleep(time.Minute)
			if _, err := s.emu.World().DeleteVolume(&world.DeleteVolumeRequest{VolumeID: v.ID}); err != nil {
				s.Error(err)
			}
		}()
		err = within(s.Context(), time.Hour, func(ctx context.Context) error {
			_, err := p.Attach(ctx, v.ID, node, forOneNode)
			return err
		})
		s.want(err, backend.ErrNotFound, "the volume is gone")
		if d := time.Since(began); d > 5*time.Minute {
			s.Errorf("it took %s", d)
		}
	})
}
