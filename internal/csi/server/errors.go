package server

import (
	"google.golang.org/grpc/status"

	csimessage "github.com/holdfast-csi/holdfast/internal/csi/message"
	"github.com/holdfast-csi/holdfast/internal/csi/statuscode"
)

// toStatus alone turns an error into a gRPC status. A cancelled
// call comes first: the caller has to treat it, with any other error, as
// one that may still have had effects. The status carries no details, as CSI
// demands ("Error Scheme"), and no secret of the request.
func toStatus(err error, secrets []string) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	message := csimessage.WithoutSecrets(err.Error(), secrets)
	if message == "" {
		message = "the operation failed without an error text"
	}
	return status.Error(statuscode.Of(err), message)
}
