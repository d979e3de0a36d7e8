//go:build linux

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Calls are EC2 calls by action.
type Calls map[string]int

// Total is the number of all calls.
func (c Calls) Total() (n int) {
	for _, calls := range c {
		n += calls
	}
	return n
}

// TakeCalls returns the calls since the last time, and how many were throttled.
func (l *Lab) TakeCalls(ctx context.Context) (calls Calls, throttled int, err error) {
	var statistics struct {
		Actions map[string]struct{ Calls, Throttled int } `json:"actions"`
	}
	if err := l.ask(ctx, http.MethodGet, "/statistics", &statistics); err != nil {
		return nil, 0, err
	}
	calls = Calls{}
	for action, s := range statistics.Actions {
		calls[action] = s.Calls
		throttled += s.Throttled
	}
	return calls, throttled, l.ask(ctx, http.MethodDelete, "/statistics", nil)
}

// ask calls the emulator's control interface.
func (l *Lab) ask(ctx context.Context, method, path string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, l.control+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("control interface of the emulator: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("control interface of the emulator: %s %s: %s", method, path, response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
