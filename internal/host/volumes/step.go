package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// Step is one step of a volume's life.
type Step string

// The steps, in the order in which a volume goes through them.
const (
	StepCreate     Step = "create"
	StepExpand     Step = "expand"
	StepAttach     Step = "attach"
	StepStage      Step = "stage"
	StepPublish    Step = "publish"
	StepExpandNode Step = "expand filesystem"
	StepOwnership  Step = "set group"
	StepUnpublish  Step = "unpublish"
	StepUnstage    Step = "unstage"
	StepDetach     Step = "detach"
	StepDelete     Step = "delete"
)

// Status is the progress of a step.
type Status int

// A step starts, may be repeated, and is done or has failed.
const (
	Started Status = iota
	Retrying
	Done
	Failed
)

// Event reports progress of a step of a volume.
type Event struct {
	Volume string // its name in messages
	Step   Step
	Status Status
	// Took is the time since the step started.
	Took time.Duration
	// Err is why a step failed or is repeated.
	Err error
	// Detail describes the result of a step, such as a size.
	Detail string
	// About are the objects for which the step is taken: claim, pod, snapshot.
	About          []journal.Ref
	Driver, Handle string
	// Code is the failure's, as gRPC names it; empty if the driver did not answer.
	Code     string
	Attempts int
	// Progress is how far a step is that was started or is repeated; nil if the driver does
	// not say.
	Progress *progress.State
}

// retry selects the errors after which a step is repeated.
type retry struct {
	call claim.Call
	// always repeats after final errors, too: a step that undoes another has no
	// alternative.
	always bool
}

func onward(call claim.Call) retry { return retry{call: call} }

func back() retry { return retry{call: claim.CallNode, always: true} }

// worth reports whether a step that failed with err may succeed when it is repeated.
func (r retry) worth(err error) bool {
	return (r.always || lifecycle.MayRun(r.call, err)) && !errors.Is(err, errStore) && !errors.Is(err, errLocal)
}

// errUncertain is in the error of a step whose outcome is uncertain: the
// controller repeats it.
var errUncertain = errors.New("the outcome is uncertain")

type uncertainStepError struct{ error }

func (u *uncertainStepError) Is(target error) bool { return target == errUncertain }
func (u *uncertainStepError) Unwrap() error        { return u.error }

// subject is the volume of a step, and the objects for which the step is taken.
type subject struct {
	label          string // the volume's name in messages
	about          []journal.Ref
	driver, handle string
	request        string // the name of a new volume or snapshot in the driver's request
}

func claimLabel(key string) string { return "claim " + key }

func claimSubject(pvc *corev1.PersistentVolumeClaim, driver, handle string) subject {
	label := claimLabel(store.Key(pvc.Namespace, pvc.Name))
	return subject{label: label, about: []journal.Ref{claimAbout(pvc)}, driver: driver, handle: handle}
}

func claimAbout(pvc *corev1.PersistentVolumeClaim) journal.Ref {
	return journal.Ref{Kind: "PersistentVolumeClaim", Key: store.Key(pvc.Namespace, pvc.Name), UID: string(pvc.UID)}
}

// stepOf runs one attempt of a step and notifies the observer. do returns a detail
// for messages.
func (m *Manager) stepOf(
	ctx context.Context, of subject, step Step, policy retry, do func(context.Context) (string, error),
) error {
	start, attempts := time.Now(), 0
	report := func(status Status, err error, detail string, so *progress.State) {
		m.options.Observe(Event{
			Volume: of.label, Step: step, Status: status, Took: time.Since(start), Err: err, Detail: detail,
			About: of.about, Driver: of.driver, Handle: of.handle, Code: codeOf(err), Attempts: attempts, Progress: so,
		})
	}
	report(Started, nil, "", nil)
	ctx, end := m.stepSpan(ctx, of, step)
	stop := m.followStep(ctx, of, func(so *progress.State) { report(Started, nil, "", so) })
	detail, err := do(ctx)
	end(err)
	last := stop()
	attempts++
	if err != nil && policy.worth(err) {
		report(Retrying, err, "", last)
		return &uncertainStepError{fmt.Errorf("%s: %s: %w", of.label, step, err)}
	}
	if err != nil {
		report(Failed, err, "", nil)
		return fmt.Errorf("%s: %s: %w", of.label, step, err)
	}
	report(Done, nil, detail, nil)
	return nil
}

// codeOf is the gRPC code's name in a driver's answer, "" if it gave none.
func codeOf(err error) string {
	var answer *client.Error
	if errors.As(err, &answer) {
		return answer.Code
	}
	return ""
}

// ask asks a driver, which may be unregistered for a short time. It is not a step of the
// volume, and no Event reports it.
func ask(ctx context.Context, volume string, question func(context.Context) error) error {
	err := question(ctx)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w", volume, err)
	if onward(claim.CallNode).worth(err) {
		return &uncertainStepError{err}
	}
	return err
}

// Failures of this machine, after which a step is not repeated.
var (
	errStore = errors.New("the state cannot be recorded")
	errLocal = errors.New("this machine refuses")
)

// saveUse writes the record of a use, or removes it if the volume is not in use any more.
// The functions in with write to the same transaction.
func (m *Manager) saveUse(use *store.VolumeUse, with ...func(*store.Tx) error) error {
	use.BootID = m.options.BootID
	err := m.update(func(tx *store.Tx) error {
		for _, also := range with {
			if err := also(tx); err != nil {
				return err
			}
		}
		if use.Idle() {
			return tx.Uses().Delete(use.Name)
		}
		return tx.Uses().Put(use.Name, use)
	})
	return recording(err)
}

// note keeps the last error in a record.
func note(trouble *store.Trouble, call claim.Call, err error) {
	if err == nil {
		*trouble = store.Trouble{}
		return
	}
	trouble.Attempts++
	trouble.LastError = err.Error()
	trouble.Outcome = lifecycle.Describe(call, err)
}

// hit passes a failpoint.
func (m *Manager) hit(name string) error { return m.options.Failpoints.Hit("host/" + name) }
