package ebs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// stuckAttachment is how long an attachment may be under way until it is reported; EC2
// usually needs seconds.
const stuckAttachment = 5 * time.Minute

// VolumeHealth returns the problems of a volume, by EC2's status checks, which EC2 makes
// every five minutes, and by its attachments.
func (c *Controller) VolumeHealth(ctx context.Context, id string) ([]backend.HealthProblem, error) {
	v, err := c.describe(ctx, id)
	if err != nil {
		return nil, err
	}
	problems := attachmentProblems(v, time.Now())
	if v.State == cloud.VolumeError {
		return append(problems, backend.HealthProblem{
			Kind: backend.HealthDataLoss, Reason: "VolumeError",
			Message: "EC2 reports the volume in the state error; restore a snapshot",
		}), nil
	}
	status, err := c.cloud.Status(ctx, id)
	switch {
	case errors.Is(err, backend.ErrNotFound): // not checked yet
		return problems, nil
	case err != nil:
		return nil, fmt.Errorf("status of volume %s: %w", id, err)
	}
	noteInitialization(ctx, status)
	return append(problems, statusProblems(status)...), nil
}

// noteInitialization reports how much of a restored volume EC2 has loaded. The volume is
// usable meanwhile, but blocks that are not loaded are read slowly.
func noteInitialization(ctx context.Context, s cloud.Status) {
	if s.Details["initialization-state"] != "initializing" {
		progress.Forget(ctx, s.VolumeID)
		return
	}
	progress.Note(ctx, s.VolumeID, "initializing", s.InitializationProgress)
}

// attachmentProblems finds attachments and detachments that make no progress.
func attachmentProblems(v cloud.Volume, now time.Time) []backend.HealthProblem {
	var problems []backend.HealthProblem
	for _, a := range v.Attachments {
		took := now.Sub(a.Since)
		switch {
		case a.State == cloud.Busy:
			problems = append(problems, backend.HealthProblem{
				Kind: backend.HealthDegraded, Reason: "DetachBusy",
				Message: fmt.Sprintf("instance %s still uses the device that is being detached; unmount it there",
					a.InstanceID),
			})
		case a.State == cloud.Attaching && !a.Since.IsZero() && took > stuckAttachment:
			problems = append(problems, backend.HealthProblem{
				Kind: backend.HealthInaccessible, Reason: "AttachStuck",
				Message: fmt.Sprintf("attaching to instance %s for %s", a.InstanceID, took.Round(time.Second)),
			})
		}
	}
	return problems
}

// statusProblems reads EC2's checks (EC2 user guide, "Monitor the status of
// your volumes").
func statusProblems(s cloud.Status) []backend.HealthProblem {
	var problems []backend.HealthProblem
	note := strings.Join(s.Events, "; ")
	if note != "" {
		note = ": " + note
	}
	if s.State == "impaired" || s.Details["io-enabled"] == "failed" {
		problems = append(problems, backend.HealthProblem{
			Kind: backend.HealthInaccessible, Reason: "VolumeImpaired",
			Message: "EC2 stopped I/O because the data may be inconsistent; check the data, then enable I/O" + note,
		})
	}
	switch performance := s.Details["io-performance"]; performance {
	case "degraded", "severely-degraded", "stalled":
		problems = append(problems, backend.HealthProblem{
			Kind: backend.HealthDegraded, Reason: "PerformanceDegraded",
			Message: "EC2 measures I/O performance as " + performance + note,
		})
	}
	if s.State == "warning" && len(problems) == 0 {
		problems = append(problems, backend.HealthProblem{
			Kind: backend.HealthDegraded, Reason: "VolumeWarning", Message: "EC2's status check reports a warning" + note,
		})
	}
	return problems
}
