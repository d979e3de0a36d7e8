package cloud

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Intervals of the calls that only check whether EC2 answers.
const (
	checkHealthy   = 3 * time.Hour
	checkUnhealthy = 30 * time.Second
)

// refusals is how many consecutive calls must be refused for their credentials, or not
// reach EC2, until the client is unhealthy.
const refusals = 3

// answerTime is the longest time that a healthy EC2 takes for an answer. If a caller
// leaves earlier, the call does not count as a failure of EC2.
const answerTime = 5 * time.Second

// health is the state of EC2, derived from the calls of operations.
type health struct {
	problem atomic.Pointer[error]

	mu     sync.Mutex
	failed int       // consecutive calls that failed
	proven time.Time // when a call last succeeded
}

// Health is nil if EC2 answers and accepts the credentials, by the last calls. It makes
// no call.
func (c *Client) Health() error {
	if problem := c.health.problem.Load(); problem != nil {
		return *problem
	}
	return nil
}

// note updates the health by a call. Only two outcomes count: EC2 accepts the
// credentials, or it is unreachable or refuses them.
func (h *health) note(failed *Error, kind outcome) {
	against := failed != nil && (kind == notSent || errors.Is(failed, backend.ErrCredentials) ||
		kind == lostAnswer && failed.Code == "")
	if failed != nil && failed.Code == "" && !against {
		return // a fault of the driver does not show the state of EC2
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !against {
		h.failed, h.proven = 0, time.Now()
		h.problem.Store(nil)
		return
	}
	h.failed++
	if h.failed >= refusals {
		h.unhealthy(failed)
	}
}

// unhealthy notes a problem; the caller holds the lock.
func (h *health) unhealthy(problem error) {
	wrapped := fmt.Errorf("EC2 cannot be used: %w", problem)
	h.problem.Store(&wrapped)
}

// checkHealth calls EC2 at the start, and rarely after that, unless other calls show its
// state.
func (c *Client) checkHealth() {
	for {
		next := c.check()
		if concurrency.Sleep(c.ctx, next) != nil {
			return
		}
	}
}

// check calls EC2 if no recent call shows its state. It returns when to check next.
func (c *Client) check() time.Duration {
	c.health.mu.Lock()
	since := time.Since(c.health.proven)
	c.health.mu.Unlock()
	if since < checkHealthy && c.Health() == nil {
		return checkHealthy - since
	}
	ctx, cancel := context.WithTimeout(c.ctx, attemptTimeout)
	defer cancel()
	began := time.Now()
	op := operation{action: "DescribeAvailabilityZones"}
	_, err := c.api.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{DryRun: aws.Bool(true)})
	failed, kind := classify(op, err)
	if c.ctx.Err() != nil {
		return 0
	}
	if failed != nil && failed.Code == "DryRunOperation" {
		failed, kind = nil, answered // the code of a dry run that is allowed
	}
	c.observed(c.ctx, op.action, began, failed, kind)
	if failed != nil && !errors.Is(failed, backend.ErrDenied) && kind != throttled {
		c.health.mu.Lock()
		c.health.unhealthy(failed)
		c.health.mu.Unlock()
		c.logger.Error("EC2 cannot be used", "error", failed)
		return checkUnhealthy
	}
	return checkHealthy
}
