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

// refusals is how many calls in a row are refused for their credentials, or do
// not reach EC2, before that is the client's health.
const refusals = 3

// answerTime is within what EC2 answers when it is healthy: a caller that leaves
// earlier does not count against EC2.
const answerTime = 5 * time.Second

// health is the state of EC2 as derived from the calls that are made anyway.
type health struct {
	problem atomic.Pointer[error]

	mu     sync.Mutex
	row    int       // calls in a row that speak against it
	proven time.Time // when one last spoke for it
}

// Health is nil when EC2 answers and accepts the credentials, as far as is
// known; it costs no call.
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
		return // a fault of ours says nothing about EC2
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !against {
		h.row, h.proven = 0, time.Now()
		h.problem.Store(nil)
		return
	}
	h.row++
	if h.row >= refusals {
		h.unhealthy(failed)
	}
}

// unhealthy notes a problem; the caller holds the lock.
func (h *health) unhealthy(problem error) {
	wrapped := fmt.Errorf("EC2 cannot be used: %w", problem)
	h.problem.Store(&wrapped)
}

// checkHealth asks EC2 at the start, and rarely after that, unless other calls
// have shown how it is.
func (c *Client) checkHealth() {
	for {
		next := c.check()
		if concurrency.Sleep(c.ctx, next) != nil {
			return
		}
	}
}

// check asks EC2 once, if there is need to, and says when to ask again.
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
	failed, kind := judge(op, err)
	if c.ctx.Err() != nil {
		return 0
	}
	if failed != nil && failed.Code == "DryRunOperation" {
		failed, kind = nil, answered // how a dry run says that it is allowed
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
