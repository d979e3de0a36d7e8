package client

import (
	"context"
	"errors"
	"io"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Invoke calls any method, such as /csi.v1.Controller/CreateVolume, of which
// this package need not know. The answer is filled in.
func (c *Client) Invoke(ctx context.Context, method string, request, answer proto.Message) error {
	_, err := call(ctx, c, path.Base(method), request,
		func(ctx context.Context, request proto.Message, options ...grpc.CallOption) (proto.Message, error) {
			return answer, c.transport.Invoke(ctx, method, request, answer, options...)
		})
	return err
}

// Stream calls a method that answers with a stream: each answer is read into
// what next makes, and given to each, whose error ends the call and is returned.
// Without an error the stream came to its end, and all answers were given.
func (c *Client) Stream(
	ctx context.Context, method string, request proto.Message, next func() proto.Message, each func(proto.Message) error,
) error {
	var refused error
	_, err := call(ctx, c, path.Base(method), request,
		func(ctx context.Context, request proto.Message, options ...grpc.CallOption) (proto.Message, error) {
			var err error
			err, refused = c.stream(ctx, method, request, next, each, options)
			return nil, err
		})
	if refused != nil {
		return refused
	}
	return err
}

// stream gives the driver's error and that of each apart: only the driver's is
// one of the call.
func (c *Client) stream(
	ctx context.Context, method string, request proto.Message,
	next func() proto.Message, each func(proto.Message) error, options []grpc.CallOption,
) (failed, refused error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a stream that is not read to its end is given up
	stream, err := c.transport.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, options...)
	if err == nil {
		err = stream.SendMsg(request)
	}
	if err == nil || errors.Is(err, io.EOF) { // EOF: RecvMsg returns the reason
		err = stream.CloseSend()
	}
	for err == nil {
		answer := next()
		if err = stream.RecvMsg(answer); errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err == nil {
			if refused = each(answer); refused != nil {
				return nil, refused
			}
		}
	}
	return err, nil
}
