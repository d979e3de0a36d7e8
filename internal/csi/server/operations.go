package server

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csi/operations"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// operationLister answers what the driver is doing now. Answers have names and IDs only.
type operationLister struct {
	operations.UnimplementedOperationsServer
	tracker *progress.Tracker
}

func (l *operationLister) ListOperations(
	context.Context, *operations.ListOperationsRequest,
) (*operations.ListOperationsResponse, error) {
	answer := &operations.ListOperationsResponse{}
	for _, one := range l.tracker.List() {
		answer.Operations = append(answer.Operations, &operations.Operation{
			Call: one.Call, Object: one.Object, Doing: one.Doing, Started: one.Started.UnixNano(),
			Done: one.Done, Total: one.Total, Unit: operations.UnitOf(one.Unit),
		})
	}
	return answer, nil
}
