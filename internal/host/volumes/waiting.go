package volumes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

// Waiting is an ErrWaiting that names the objects whose change ends the wait.
type Waiting struct { //nolint:errname // the name distinguishes it from failures
	On     []journal.Ref
	text   string
	causes []error
}

func (w *Waiting) Error() string { return w.text }

// Unwrap returns the causes, each of which means waiting, if there are any.
func (w *Waiting) Unwrap() []error { return w.causes }

// Is makes every Waiting an ErrWaiting.
func (w *Waiting) Is(target error) bool { return target == ErrWaiting }

// waitingFor makes a Waiting for a change of one object.
func waitingFor(kind, key, format string, arguments ...any) error {
	return &Waiting{On: []journal.Ref{{Kind: kind, Key: key}}, text: fmt.Sprintf(format, arguments...)}
}

// gather returns the error of several volumes of one pod: if one of them
// failed, the result is not an ErrWaiting.
func gather(failures []error) error {
	var failed []error
	var waiting []string
	together := &Waiting{}
	for _, err := range failures {
		var one *Waiting
		switch {
		case err == nil:
		case errors.As(err, &one):
			waiting = append(waiting, err.Error())
			together.On = append(together.On, one.On...)
			together.causes = append(together.causes, err)
		case errors.Is(err, ErrWaiting):
			waiting = append(waiting, err.Error())
			together.causes = append(together.causes, err)
		default:
			failed = append(failed, err)
		}
	}
	together.text = strings.Join(waiting, "\n")
	switch {
	case len(waiting) == 0:
		return errors.Join(failed...)
	case len(failed) == 0:
		return together
	}
	return errors.Join(append(failed, errors.New(together.text))...)
}
