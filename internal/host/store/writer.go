package store

import "context"

// Writer identifies one call of a controller, so that the controller distinguishes
// its own changes from others.
type Writer struct {
	// Name is the controller and the key that it processes.
	Name string
}

func (w *Writer) name() string {
	if w == nil {
		return ""
	}
	return w.Name
}

type writerKey struct{}

// WithWriter returns a context whose changes are written by a writer.
func WithWriter(ctx context.Context, writer *Writer) context.Context {
	return context.WithValue(ctx, writerKey{}, writer)
}

// WriterOf is the writer of a context, nil if it has none.
func WriterOf(ctx context.Context) *Writer {
	writer, _ := ctx.Value(writerKey{}).(*Writer)
	return writer
}
