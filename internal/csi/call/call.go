package call

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/csi/message"
)

// Error is a driver's answer that is not OK: its code's name and its words,
// without the secrets of the request.
type Error struct{ Code, Message string }

func (f *Error) Error() string { return f.Code + ": " + f.Message }

// Call calls a method and gives each of its answers to each: one, or those of a
// stream as they come.
func (m Method) Call(
	ctx context.Context, client *csiclient.Client, request proto.Message, each func(proto.Message) error,
) error {
	if m.Stream {
		return failure(client.Stream(ctx, m.Path(), request, m.Answer, each))
	}
	answer := m.Answer()
	if err := failure(client.Invoke(ctx, m.Path(), request, answer)); err != nil {
		return err
	}
	return each(answer)
}

func failure(err error) error {
	var answer *csiclient.Error
	if !errors.As(err, &answer) {
		return err
	}
	return &Error{Code: answer.Code, Message: answer.Message}
}

// Check refuses a request that breaks a rule of CSI.
func (m Method) Check(request proto.Message) error {
	if err := message.Check(request); err != nil {
		return fmt.Errorf("%s: %w (--no-check sends it as it is)", m.Name, err)
	}
	return nil
}
