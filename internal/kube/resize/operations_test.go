package resize

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestOperations_anExpansionByTheCodeOfItsFailure(t *testing.T) {
	w := newWorld(t)
	w.always(expandRPC, csidriver.Fail(codes.Unavailable, "away"))
	w.run()
	w.Unfinished(w.Env, resizeOperation, "running", 0)
	w.change(asking(2))
	w.Unfinished(w.Env, resizeOperation, "Unavailable", 1)
	w.Unfinished(w.Env, modifyOperation, "Unavailable", 0)
	w.always(expandRPC, nil)
	w.Unfinished(w.Env, resizeOperation, "Unavailable", 0)
}
