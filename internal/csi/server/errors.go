package server

import (
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/csi/statuscode"
	"github.com/holdfast-csi/holdfast/internal/redact"
)

// toStatus alone turns an error into a gRPC status. A cancelled
// call comes first: the caller has to treat it, with any other error, as
// one that may still have had effects. The status carries no details, as CSI
// demands ("Error Scheme"), and no secret of the request.
func toStatus(err error, secrets redact.Secrets) error {
	if err == nil {
		return nil
	}
	if given, ok := status.FromError(err); ok {
		return status.Error(given.Code(), secrets.Text(given.Message()))
	}
	message := secrets.Text(err.Error())
	if message == "" {
		message = "the operation failed without an error text"
	}
	return status.Error(statuscode.Of(err), message)
}
