package api

import (
	"context"
	"net/http"
)

// Pool is the state of a pool of the host's own driver. Figures are in bytes.
type Pool struct {
	Driver string `json:"driver"`
	// Name is its path.
	Name string `json:"name"`
	// Size is 0 if the pool cannot be read; the figures below are then missing, too.
	Size      int64 `json:"size,omitempty"`
	Available int64 `json:"available,omitempty"`
	// Promised is the sum of the sizes of its volumes.
	Promised int64 `json:"promised,omitempty"`
	// Used is what uses it: volumes, snapshots, partial, trash and other.
	Used map[string]int64 `json:"used,omitempty"`
	// FullSeconds is when it is full if it grows as in the last 24 hours; nil if it does
	// not grow, or if that is not known.
	FullSeconds *int64 `json:"fullSeconds,omitempty"`
	// Conditions are its problems, as sentences.
	Conditions []string `json:"conditions,omitempty"`
}

func (s *Server) pools(w http.ResponseWriter, _ *http.Request) error {
	pools := []Pool{}
	if s.options.Pools != nil {
		pools = append(pools, s.options.Pools()...)
	}
	s.answer(w, http.StatusOK, pools)
	return nil
}

// Pools returns the pools of the host's own driver.
func (c *Client) Pools(ctx context.Context) ([]Pool, error) {
	var pools []Pool
	err := c.own(ctx, "pools", nil, &pools)
	return pools, err
}
