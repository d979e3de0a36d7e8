//go:build !linux

package lab

import (
	"errors"
	"os"
)

func ownProgram() (*os.File, error) { return nil, errors.ErrUnsupported }
