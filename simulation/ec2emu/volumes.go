package ec2emu

import "net/http"

// controlVolume is POST /volumes/ID/CHANGE.
func (s *Server) controlVolume(r *http.Request, sent []byte) (any, error) {
	id := r.PathValue("id")
	var err error
	switch change := r.PathValue("change"); change {
	case "stick", "unstick":
		var at struct {
			Instance string `json:"instance"`
		}
		if err := strictJSON(sent, &at); err != nil {
			return nil, wrong("%w", err)
		}
		if change == "stick" {
			err = s.world.Stick(id, at.Instance)
		} else {
			err = s.world.Unstick(id, at.Instance)
		}
	case "impair":
		err = s.world.Impair(id, true)
	case "heal":
		err = s.world.Impair(id, false)
	case "restore":
		err = s.world.Restore(id)
	default:
		return nil, unknown("%s: want stick, unstick, impair, heal or restore", change)
	}
	if err != nil {
		return nil, err
	}
	return done{true}, nil
}

// controlSnapshot is POST /snapshots/ID/CHANGE.
func (s *Server) controlSnapshot(r *http.Request, _ []byte) (any, error) {
	id := r.PathValue("id")
	var err error
	switch change := r.PathValue("change"); change {
	case "back-image":
		err = s.world.BackImage(id, true)
	case "free-image":
		err = s.world.BackImage(id, false)
	default:
		return nil, unknown("%s: want back-image or free-image", change)
	}
	if err != nil {
		return nil, err
	}
	return done{true}, nil
}

// controlForeignSnapshot is POST /snapshots, which adds a snapshot of another account.
func (s *Server) controlForeignSnapshot(_ *http.Request, sent []byte) (any, error) {
	var wanted struct {
		Owner  string `json:"owner"`
		Size   int32  `json:"size"` // GiB
		Public bool   `json:"public"`
	}
	if err := strictJSON(sent, &wanted); err != nil {
		return nil, wrong("%w", err)
	}
	id, err := s.world.AddForeignSnapshot(wanted.Owner, wanted.Size, wanted.Public)
	if err != nil {
		return nil, wrong("%w", err)
	}
	return map[string]string{"id": id}, nil
}

type done struct {
	Done bool `json:"done"`
}
