package supervise

import (
	"errors"
	"testing"
	"time"
)

func TestNextLook(t *testing.T) {
	broken := errors.New("broken")
	var pauses []time.Duration
	var pause time.Duration
	for range 8 {
		pause = nextLook(pause, broken, nil)
		pauses = append(pauses, pause)
	}
	if pauses[0] != lookAgain || pauses[1] != 2*lookAgain || pauses[7] != lookSeldom {
		t.Errorf("a directory that is refused is looked at after %v", pauses)
	}
	if got := nextLook(pause, broken, broken); got != lookAgain {
		t.Errorf("without notices of changes it is looked at after %s", got)
	}
	if got := nextLook(pause, nil, nil); got != 0 {
		t.Errorf("without need it is looked at after %s", got)
	}
}
