package client

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// frame is a message as it is on the wire.
type frame []byte

// raw is a codec that leaves messages alone. Its name is empty, so that the
// content type stays that of an ordinary call.
type raw struct{}

func (raw) Marshal(message any) (mem.BufferSlice, error) {
	bytes, ok := message.(*frame)
	if !ok {
		return nil, fmt.Errorf("a %T is not a raw message", message)
	}
	return mem.BufferSlice{mem.SliceBuffer(*bytes)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, message any) error {
	bytes, ok := message.(*frame)
	if !ok {
		return fmt.Errorf("a %T is not a raw message", message)
	}
	*bytes = data.Materialize()
	return nil
}

func (raw) Name() string { return "" }
