package ebs

import (
	"errors"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
)

func TestValidate_comparesWithTheRealVolume(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		one := backend.Capability{Mode: backend.SingleNodeWriter}
		request := guard.CreateRequest{
			Name: "pvc-1", Range: backend.SizeRange{Required: 10 * gib}, Capabilities: []backend.Capability{one},
			Parameters: map[string]string{"Type": "gp3"}, MutableParameters: map[string]string{"iops": "4000"},
		}
		volume, err := p.CreateVolume(s.Context(), request)
		if err != nil {
			s.Fatal(err)
		}
		for why, c := range map[string]struct {
			belief backend.VolumeSpec
			want   error
		}{
			"nothing named":     {backend.VolumeSpec{}, nil},
			"as it was made":    {backend.VolumeSpec{Parameters: map[string]string{"TYPE": "gp3"}, MutableParameters: map[string]string{"iops": "4000"}}, nil},
			"in part":           {backend.VolumeSpec{Parameters: map[string]string{"type": "gp3"}}, nil},
			"another type":      {backend.VolumeSpec{Parameters: map[string]string{"type": "gp2"}}, backend.ErrInvalid},
			"other iops":        {backend.VolumeSpec{MutableParameters: map[string]string{"iops": "5000"}}, backend.ErrInvalid},
			"encrypted":         {backend.VolumeSpec{Parameters: map[string]string{"encrypted": "true"}}, backend.ErrInvalid},
			"no number":         {backend.VolumeSpec{MutableParameters: map[string]string{"iops": "many"}}, backend.ErrInvalid},
			"from several":      {backend.VolumeSpec{Capabilities: []backend.Capability{{Mode: backend.MultiNodeMultiWriter, Block: true}}}, backend.ErrInvalid},
			"mounted, by many":  {backend.VolumeSpec{Capabilities: []backend.Capability{{Mode: backend.MultiNodeMultiWriter}}}, backend.ErrInvalid},
			"an unused mode":    {backend.VolumeSpec{Capabilities: []backend.Capability{{Mode: backend.MultiNodeSingleWriter}}}, backend.ErrInvalid},
			"as a single block": {backend.VolumeSpec{Capabilities: []backend.Capability{{Mode: backend.SingleNodeSingleWriter, Block: true}}}, nil},
		} {
			if c.belief.Size = volume.Size; len(c.belief.Capabilities) == 0 {
				c.belief.Capabilities = []backend.Capability{one}
			}
			if err := p.Validate(volume, c.belief); !errors.Is(err, c.want) {
				s.Errorf("%s: %v; want %v", why, err, c.want)
			}
		}
	})
}
