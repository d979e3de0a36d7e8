package supervise

import (
	"errors"
	"testing"
	"time"
)

func TestNextPoll(t *testing.T) {
	broken := errors.New("broken")
	var pauses []time.Duration
	var pause time.Duration
	for range 8 {
		pause = nextPoll(pause, broken, nil)
		pauses = append(pauses, pause)
	}
	if pauses[0] != pollFailed || pauses[1] != 2*pollFailed || pauses[7] != pollLongest {
		t.Errorf("a directory that is refused is read again after %v", pauses)
	}
	if got := nextPoll(pause, broken, broken); got != pollFailed {
		t.Errorf("without notices of changes it is read again after %s", got)
	}
	if got := nextPoll(pause, nil, nil); got != 0 {
		t.Errorf("without need it is read again after %s", got)
	}
}
