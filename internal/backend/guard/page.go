package guard

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// tokenPrefix marks the tokens of this package and their version. A token
// names the last ID of a page, not a position, so it stays good while things
// come and go, and after a restart.
const tokenPrefix = "v1 after "

// page runs one step of a listing in the order of IDs.
func page[T any](
	token string, maximum int, list func(after string, limit int) ([]T, error), id func(T) string,
) ([]T, string, error) {
	if maximum < 0 {
		return nil, "", fmt.Errorf("%w: max_entries %d is negative", backend.ErrInvalid, maximum)
	}
	after, err := decodeToken(token)
	if err != nil {
		return nil, "", err
	}
	limit := 0
	if maximum > 0 {
		limit = maximum + 1 // one more reports whether there is a next page
	}
	items, err := list(after, limit)
	if err != nil {
		return nil, "", err
	}
	if maximum == 0 || len(items) <= maximum {
		return items, "", nil
	}
	items = items[:maximum]
	return items, encodeToken(id(items[maximum-1])), nil
}

func encodeToken(id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(tokenPrefix + id))
}

func decodeToken(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	after, found := strings.CutPrefix(string(text), tokenPrefix)
	if err != nil || !found || after == "" {
		return "", fmt.Errorf("%w: starting_token was not issued here; begin again without one", backend.ErrStaleToken)
	}
	return after, nil
}
