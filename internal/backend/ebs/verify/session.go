// Package verify has the assumptions of the ebs backend that only the EC2 emulator and
// AWS's documents confirm, each with a check that asks EC2 itself. `holdfast verify ebs` runs
// them. They make a few small volumes and one snapshot, all tagged, and remove them.
package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// Tag marks every resource that a run makes; its value is the run. Find finds them by it.
const Tag = "holdfast.dev/verify"

// Lag is how long the driver lets EC2's describes lag behind its answers (--ec2-lag).
const Lag = 10 * time.Second

// How long a check waits for a transition, and between two polls.
const (
	transition = 3 * time.Minute
	interval   = 250 * time.Millisecond
)

// Options configure a Session.
type Options struct {
	// Cloud is a client of EC2 with a Lag of one nanosecond, so that it reports what EC2
	// describes and not what it remembers.
	Cloud *cloud.Client
	// Run names this run in tags and client tokens.
	Run string
	// Zone is where volumes are made. Without it, nothing is made.
	Zone string
	// InstanceID is the instance that a volume is attached to; "" for none.
	InstanceID string
	// Machine reads the disks of this machine if it is that instance; nil otherwise.
	Machine Machine
	// Metadata asks this machine which instance it is; nil if it is none.
	Metadata metadata.Source
	// Ledger records what is made.
	Ledger *verify.Ledger
}

// Machine is the guest's side of an attachment.
type Machine interface {
	// Disk returns the NVMe serial and model of the disk of a volume; "" if the guest does
	// not have it.
	Disk(ctx context.Context, volumeID string) (serial, model string, err error)
}

// Session is one run.
type Session struct {
	Options
	volume   cloud.Volume // that the checks of attachments and modifications use
	snapshot cloud.Snapshot
	device   string    // under which volume is attached
	spent    string    // the client token of a volume that was deleted
	asked    time.Time // when the last creation was requested
}

// New makes a session; Checks has what it runs.
func New(o Options) *Session { return &Session{Options: o} }

// Checks are all checks in their order. Each assumption is in it, whatever the options are:
// a check that lacks what it needs says so.
func (s *Session) Checks() []verify.Check {
	return slices.Concat(s.describes(), s.metadata(), s.creation(), s.modification(), s.snapshots(), s.attachment(), s.deletion())
}

// check is a row of a table of checks.
func check(id, statement, source, otherwise string, run func(context.Context) verify.Result) verify.Check {
	return verify.Check{
		Assumption: verify.Assumption{ID: id, Statement: statement, Source: source, Otherwise: otherwise}, Run: run,
	}
}

// The sources that most assumptions have.
const (
	errorCodes   = "EC2 API reference, Error codes"
	idempotency  = "EC2 API reference, Ensuring idempotency"
	eventual     = "EC2 API reference, Eventual consistency"
	undocumented = "not documented"
)

// refused is the result for a call that EC2 must refuse with one of the codes.
func refused(err error, codes ...string) verify.Result {
	var failed *cloud.Error
	switch {
	case err == nil:
		return verify.Differed("EC2 accepted the call")
	case !errors.As(err, &failed) || failed.Code == "":
		return verify.Skipped("EC2 did not answer: %v", err)
	case isDenied(failed.Code):
		return verify.Skipped("not allowed: %s", failed.Code)
	case slices.Contains(codes, failed.Code):
		return verify.Held("%s: %s", failed.Code, failed.Message)
	}
	return verify.Differed("%s: %s", failed.Code, failed.Message)
}

// failed is the result for a call that must succeed and did not.
func failed(err error) verify.Result {
	switch code := cloud.Code(err); {
	case code == "":
		return verify.Skipped("EC2 did not answer: %v", err)
	case isDenied(code):
		return verify.Skipped("not allowed: %v", err)
	}
	return verify.Differed("%v", err)
}

// isDenied reports whether a code is about the caller's rights.
func isDenied(code string) bool {
	return slices.Contains([]string{"UnauthorizedOperation", "AccessDenied", "AuthFailure", "RequestExpired", "OptInRequired"}, code)
}

// within polls until seen reports true, and returns how long that took. The error is seen's,
// or the context's.
func within(ctx context.Context, limit time.Duration, seen func(context.Context) (bool, error)) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for began := time.Now(); ; {
		ok, err := seen(ctx)
		if ok || err != nil {
			return time.Since(began), err
		}
		if err := concurrency.Sleep(ctx, interval); err != nil {
			return time.Since(began), fmt.Errorf("not within %v: %w", limit, err)
		}
	}
}

// appears is the result for a resource that a describe must show within the lag.
func appears(ctx context.Context, seen func(context.Context) (bool, error)) verify.Result {
	took, err := within(ctx, 6*Lag, seen)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return verify.Differed("not shown after %v", 6*Lag)
	case err != nil:
		return failed(err)
	case took > Lag:
		return verify.Differed("shown after %v; the driver expects it within %v", took.Round(interval), Lag)
	}
	return verify.Held("shown after %v", took.Round(10*time.Millisecond))
}

// token is the client token of a step. It is the run's own, so that a run that is repeated
// makes new volumes.
func (s *Session) token(step string) string { return s.Run + "-" + step }

// unknownID is the ID of a resource that does not exist: one that EC2 could assign.
func unknownID(prefix string, n int) string {
	return fmt.Sprintf("%s-0%s%x", prefix, strings.Repeat("f", 15), n%16)
}

// needsZone is the reason of a check that makes nothing.
func (s *Session) needsZone() (verify.Result, bool) {
	return verify.Skipped("it makes a volume: name a zone with --zone"), s.Zone == ""
}

// needsVolume is the reason of a check whose volume could not be made.
func (s *Session) needsVolume() (verify.Result, bool) {
	if skipped, missing := s.needsZone(); missing {
		return skipped, true
	}
	return verify.Skipped("its volume was not made"), s.volume.ID == ""
}
