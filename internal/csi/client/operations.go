package client

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/csi/operations"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// longestDoing bounds the words for what a driver does, in bytes: the journal has them with
// each report.
const longestDoing = 64

// operationsTimeout bounds the question: a driver answers from memory.
const operationsTimeout = 2 * time.Second

// Operations lists what the driver is doing now. A driver that has no such service is
// asked once per connection; Lacks reports its error. The call is not logged: it is
// repeated for as long as an operation runs.
func (c *Client) Operations(ctx context.Context) ([]progress.Operation, error) {
	c.mu.Lock()
	lacks, connection := c.cache.lacksOperations, c.cache.connection
	c.mu.Unlock()
	err := status.Error(codes.Unimplemented, "the driver does not list its operations")
	if !lacks {
		var found []progress.Operation
		if found, err = c.listOperations(ctx); err == nil {
			return found, nil
		}
	}
	if status.Code(err) == codes.Unimplemented {
		c.mu.Lock()
		c.cache.lacksOperations = c.cache.connection == connection
		c.mu.Unlock()
	}
	return nil, translate(err, c.options.Driver, "ListOperations", "", nil)
}

func (c *Client) listOperations(ctx context.Context) ([]progress.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, operationsTimeout)
	defer cancel()
	defer c.begin()()
	answer, err := operations.NewOperationsClient(c.transport).ListOperations(ctx, &operations.ListOperationsRequest{})
	if err != nil {
		return nil, err
	}
	found := make([]progress.Operation, 0, len(answer.GetOperations()))
	for _, one := range answer.GetOperations() {
		found = append(found, progress.Operation{
			Call: one.GetCall(), Object: one.GetObject(), Doing: shortened(one.GetDoing()), Started: time.Unix(0, one.GetStarted()),
			Done: max(one.GetDone(), 0), Total: max(one.GetTotal(), 0), Unit: one.GetUnit().Progress(),
		})
	}
	return found, nil
}

func shortened(doing string) string {
	return strings.ToValidUTF8(doing[:min(len(doing), longestDoing)], "")
}
