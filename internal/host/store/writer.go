package store

import "context"

// Writer is one call of a controller, so that it can tell its own changes from
// those of others.
type Writer struct {
	_ byte // two that are in use are never at one address
}

type writerKey struct{}

// WithWriter has what is done with the context written in a writer's name.
func WithWriter(ctx context.Context, writer *Writer) context.Context {
	return context.WithValue(ctx, writerKey{}, writer)
}

// WriterOf is the writer of a context, nil if it has none.
func WriterOf(ctx context.Context) *Writer {
	writer, _ := ctx.Value(writerKey{}).(*Writer)
	return writer
}
