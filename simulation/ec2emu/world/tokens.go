package world

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

const (
	maxToken      = 64 // characters
	tokenLifetime = 12 * time.Hour
)

func checkToken(t string) *Error {
	if len(t) > maxToken {
		return invalid("Client token must be less than or equal to %d characters", maxToken)
	}
	return nil
}

// hashOf is the hash of the parameters that must be equal in a repeated call: all but the
// token and the dry run.
func (w *World) hashOf(request any) string {
	switch r := request.(type) {
	case CreateVolumeRequest:
		r.ClientToken, r.DryRun = "", false
		r.TagSpecifications = w.sameOrder(r.TagSpecifications)
		request = r
	case CopyVolumesRequest:
		r.ClientToken, r.DryRun = "", false
		r.TagSpecifications = w.sameOrder(r.TagSpecifications)
		request = r
	}
	data, err := json.Marshal(request)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// sameOrder sorts tags, unless their order is a parameter (TagOrder).
func (w *World) sameOrder(specifications []TagSpecification) []TagSpecification {
	if w.knobs.Tokens.TagOrder {
		return specifications
	}
	sorted := make([]TagSpecification, len(specifications))
	for i, s := range specifications {
		s.Tags = slices.Clone(s.Tags)
		slices.SortFunc(s.Tags, func(a, b Tag) int { return strings.Compare(a.Key, b.Key) })
		sorted[i] = s
	}
	return sorted
}

// recall returns the volume that a call with this token created; nil if there is none, or
// if the token has expired.
func (w *World) recall(action, clientToken, hash string) (*volume, *Error) {
	t := w.Tokens[action+" "+clientToken]
	if clientToken == "" || t == nil || w.now().Sub(t.Created) >= w.tokenLifetime() {
		return nil, nil
	}
	if t.Hash != hash {
		return nil, refuse("IdempotentParameterMismatch",
			"Parameters on this idempotent request are inconsistent with parameters used in previous request(s)")
	}
	v := w.Volumes[t.VolumeID]
	if t.Dead || v == nil {
		return nil, refuse("IdempotentParameterMismatch", "The client token you have provided is associated with a resource that is already deleted. Please use a different client token.")
	}
	return v, nil
}

func (w *World) tokenLifetime() time.Duration {
	if w.knobs.Tokens.Lifetime > 0 {
		return time.Duration(w.knobs.Tokens.Lifetime)
	}
	return tokenLifetime
}

func (w *World) remember(action, clientToken, hash string, v *volume) {
	if clientToken != "" {
		v.Token = action + " " + clientToken
		w.Tokens[v.Token] = &token{Hash: hash, VolumeID: v.ID, Created: w.now()}
	}
}

// burnToken marks the token of a deleted volume.
func (w *World) burnToken(v *volume) {
	if t := w.Tokens[v.Token]; t != nil && t.VolumeID == v.ID {
		t.Dead = true
	}
}
