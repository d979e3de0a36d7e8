package cloud

// Error is a call that failed.
type Error struct {
	// Action of EC2, such as AttachVolume.
	Action string
	// Code is EC2's, such as IncorrectState; "" when EC2 did not answer.
	Code, Message, RequestID string
	// Uncertain: the call may have had its effect all the same, because an
	// answer was lost. Who gets it looks before doing it again.
	Uncertain bool

	resource string
	cause    error
}

func (e *Error) Error() string { return e.Action + ": " + e.Message }

// Unwrap gives the sentinel of package backend that the code stands for.
func (e *Error) Unwrap() []error { return nil }

// Code is EC2's error code in err, or "".
func Code(err error) string { return "" }
