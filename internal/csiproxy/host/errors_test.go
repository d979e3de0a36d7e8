package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

func TestMeanings_giveEachNumberOneMeaning(t *testing.T) {
	seen := map[win32.Errno]error{}
	for sentinel, numbers := range meanings {
		for _, number := range numbers {
			if other, twice := seen[number]; twice {
				t.Errorf("%v means %v and %v", number, sentinel, other)
			}
			seen[number] = sentinel
		}
	}
}

// Callers learn by a code what went wrong, and people by the number.
func TestFailed_translatesTheNumbersThatMatter(t *testing.T) {
	for number, want := range map[win32.Errno]error{
		2: backend.ErrNotFound, 3: backend.ErrNotFound, 5: backend.ErrDenied, 19: backend.ErrPrecondition, 21: backend.ErrUnavailable,
		32: backend.ErrInUse, 112: backend.ErrNoSpace, 145: backend.ErrPrecondition, 183: backend.ErrExists, 1005: backend.ErrPrecondition,
		53: backend.ErrNotFound, 67: backend.ErrNotFound, 65: backend.ErrInvalid, 87: backend.ErrInvalid, 86: backend.ErrCredentials,
		1326: backend.ErrCredentials, 1219: backend.ErrPrecondition, 1060: backend.ErrNotFound, 1051: backend.ErrPrecondition,
		1392: backend.ErrDataLoss, 50: backend.ErrUnsupported, 0xEFFF0003: backend.ErrUnavailable, 0xEFFF0009: backend.ErrCredentials,
		0xEFFF0029: backend.ErrNotFound, 0xEFFF0040: backend.ErrInUse,
	} {
		err := failed(fmt.Errorf("call: %w", number), "do %d things", 3)
		if !errors.Is(err, want) || !errors.Is(err, number) {
			t.Errorf("%d gives %v; want %v", number, err, want)
		}
		if text := err.Error(); !strings.Contains(text, "do 3 things") || !strings.Contains(text, number.Error()) {
			t.Errorf("%d: the text %q lacks the step or the number", number, text)
		}
	}
}

func TestFailed_keepsAMeaningThatIsThere(t *testing.T) {
	err := failed(fmt.Errorf("%w: %w", backend.ErrInUse, win32.ErrorAccessDenied), "lock")
	if !errors.Is(err, backend.ErrInUse) || errors.Is(err, backend.ErrDenied) {
		t.Error(err)
	}
	for _, plain := range []error{context.Canceled, errors.New("no number"), win32.Errno(4711)} {
		if err := failed(plain, "step"); !errors.Is(err, plain) || meant(err) {
			t.Error(err)
		}
	}
	if err := failed(nil, "step"); err != nil {
		t.Error(err)
	}
}
