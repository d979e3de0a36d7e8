package ec2emu

import "github.com/holdfast-csi/holdfast/simulation/ec2emu/world"

// AllKnobs are those of the endpoint and those of the world behind it.
type AllKnobs struct {
	Endpoint Knobs       `json:"endpoint"`
	World    world.Knobs `json:"world"`
}

// AllKnobs are those in force.
func (s *Server) AllKnobs() AllKnobs { return AllKnobs{Endpoint: s.Knobs(), World: s.world.Knobs()} }

// SetAllKnobs replaces all of them, or none.
func (s *Server) SetAllKnobs(k AllKnobs) error {
	if err := k.Endpoint.validate(); err != nil {
		return err
	}
	if err := s.world.SetKnobs(k.World); err != nil {
		return err
	}
	return s.SetKnobs(k.Endpoint)
}

// Patched is k with what a JSON object says, which names only what changes.
func (k AllKnobs) Patched(patch []byte) (AllKnobs, error) { return patched(k, patch) }
