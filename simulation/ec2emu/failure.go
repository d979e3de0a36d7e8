package ec2emu

import "net/http"

// failure is an answer that is an error: EC2's code, its text, and the HTTP
// status that goes with it.
type failure struct {
	Code, Message string
	Status        int
}

func (f *failure) Error() string { return f.Code + ": " + f.Message }

func badRequest(code, message string) error {
	return &failure{Code: code, Message: message, Status: http.StatusBadRequest}
}
