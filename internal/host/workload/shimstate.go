package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// readState returns the zero State if there is none. One that cannot be read
// is an error: who does not know must not start anything.
func readState(root *os.Root) (State, error) {
	data, err := root.ReadFile(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("read the container's state: %w", err)
	}
	var state State
	if err := json.Unmarshal(data, &state); err != nil {
		return State{}, fmt.Errorf("the container's state %s/%s is damaged: %w", root.Name(), stateFile, err)
	}
	if state.Version > StateVersion {
		return State{}, fmt.Errorf("the container's state %s/%s has version %d; this program knows %d: use the newer holdfast that wrote it",
			root.Name(), stateFile, state.Version, StateVersion)
	}
	return state, nil
}

// writeState makes the state durable.
func writeState(root *os.Root, state State) error {
	state.Version = StateVersion
	data, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("write the container's state: %w", err)
	}
	if err := durable.WriteFile(root, stateFile, data, 0o600); err != nil {
		return fmt.Errorf("write the container's state: %w", err)
	}
	return nil
}

// end is the state after the attempt's end.
func (s State) end(ended Ended) State {
	ended.Attempt, ended.Started = s.Attempt, s.Started
	if ended.Started.IsZero() {
		ended.Started = ended.Finished
	}
	s.Phase, s.Ended = Exited, &ended
	return s
}

// next is the state of the attempt after an ended one, or of one that never
// came to its command.
func (s State) next(bootID string) State {
	if s.Phase == Exited {
		return State{Attempt: s.Attempt + 1, Previous: s.Ended, BootID: bootID, Phase: Starting}
	}
	return State{Attempt: s.Attempt, Previous: s.Previous, BootID: bootID, Phase: Starting}
}
