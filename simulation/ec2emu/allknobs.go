package ec2emu

import "github.com/holdfast-csi/holdfast/simulation/ec2emu/world"

// AllKnobs are the knobs of the endpoint and of its world.
type AllKnobs struct {
	Endpoint Knobs       `json:"endpoint"`
	World    world.Knobs `json:"world"`
}

// AllKnobs returns the current knobs.
func (s *Server) AllKnobs() AllKnobs { return AllKnobs{Endpoint: s.Knobs(), World: s.world.Knobs()} }

// SetAllKnobs replaces all knobs, or none.
func (s *Server) SetAllKnobs(k AllKnobs) error {
	if err := k.Endpoint.validate(); err != nil {
		return err
	}
	if err := s.world.SetKnobs(k.World); err != nil {
		return err
	}
	return s.SetKnobs(k.Endpoint)
}

// Patched is k with the fields of a JSON object.
func (k AllKnobs) Patched(patch []byte) (AllKnobs, error) { return patched(k, patch) }
