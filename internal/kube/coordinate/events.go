package coordinate

import (
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// reasonFailed is external-provisioner's reason of an event on a claim that waits.
const reasonFailed = "ProvisioningFailed"

// eventRepeat is when a message is repeated: events are kept for an hour.
const eventRepeat = 15 * time.Minute

// changedPause is the pause after a write that met another one: the watch delivers the
// object's new state meanwhile.
const changedPause = time.Second

func isGone(err error) bool    { return errors.Is(err, cluster.ErrGone) }
func isChanged(err error) bool { return errors.Is(err, cluster.ErrChanged) }

// events writes an event on a claim once, and repeats an equal one rarely.
type events struct {
	recorder record.EventRecorder

	mu   sync.Mutex
	last map[types.UID]message
}

type message struct {
	text string
	at   time.Time
}

func (e *events) warn(pvc *corev1.PersistentVolumeClaim, format string, arguments ...any) {
	text := cluster.Truncate(fmt.Sprintf(format, arguments...))
	e.mu.Lock()
	last := e.last[pvc.UID]
	fresh := last.text != text || time.Since(last.at) > eventRepeat
	if fresh {
		if e.last == nil {
			e.last = map[types.UID]message{}
		}
		e.last[pvc.UID] = message{text, time.Now()}
	}
	e.mu.Unlock()
	if fresh {
		e.recorder.Event(pvc, corev1.EventTypeWarning, reasonFailed, text)
	}
}

func (e *events) forget(claim types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.last, claim)
}
