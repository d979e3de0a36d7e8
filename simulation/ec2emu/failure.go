package ec2emu

import "net/http"

// failure is an error answer: EC2's code, its text, and the HTTP status.
type failure struct {
	Code, Message string
	Status        int
}

func (f *failure) Error() string { return f.Code + ": " + f.Message }

func badRequest(code, message string) error {
	return &failure{Code: code, Message: message, Status: http.StatusBadRequest}
}
