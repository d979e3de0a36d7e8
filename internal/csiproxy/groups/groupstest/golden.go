package groupstest

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// Exchange is one call of a version: the request, the calls to the machine of
// Answering, and the response.
type Exchange struct {
	method  string
	request []byte
	asked   []string
	answers [][]byte
}

// Sent begins an exchange.
func Sent(method string, request ...[]byte) Exchange {
	return Exchange{method: method, request: Message(request...)}
}

// Asks says what the host is asked, in this order.
func (e Exchange) Asks(calls ...string) Exchange {
	e.asked = calls
	return e
}

// Answers says what the response is, where it is not empty. There may be several,
// since maps have no order.
func (e Exchange) Answers(either ...[]byte) Exchange {
	e.answers = either
	return e
}

func (e Exchange) check(t *testing.T, server *Server, machine *Machine) {
	t.Helper()
	response, err := server.Call(t, e.method, e.request)
	if err != nil {
		t.Errorf("%s: %v", e.method, err)
		return
	}
	if diff := cmp.Diff(e.asked, machine.Calls()); diff != "" {
		t.Errorf("%s asks the host (-want +got):\n%s", e.method, diff)
	}
	answers := e.answers
	if answers == nil {
		answers = [][]byte{nil}
	}
	if !slices.ContainsFunc(answers, func(want []byte) bool { return bytes.Equal(response, want) }) {
		t.Errorf("%s answers %x, want one of %x", e.method, response, answers)
	}
}

// Check compares every call of every version with the exchanges listed for it, and
// the versions and calls that there are with those that are listed.
func Check(t *testing.T, versions []api.Definition, exchanges map[string][]Exchange) {
	t.Helper()
	served := make(map[string]bool)
	for _, definition := range versions {
		served[definition.Version] = true
		t.Run(definition.Version, func(t *testing.T) { checkVersion(t, definition, exchanges[definition.Version]) })
	}
	for _, name := range slices.Sorted(maps.Keys(exchanges)) {
		if !served[name] {
			t.Errorf("%s is not served", name)
		}
	}
}

func checkVersion(t *testing.T, definition api.Definition, exchanges []Exchange) {
	machine := Answering()
	server := Serve(t, definition, machine.Host())
	listed := make(map[string]bool)
	for _, exchange := range exchanges {
		listed[exchange.method] = true
		exchange.check(t, server, machine)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(listed)), slices.Sorted(slices.Values(server.Methods))); diff != "" {
		t.Errorf("calls (-listed +served):\n%s", diff)
	}
}

// Method is the call's name.
func (e Exchange) Method() string { return e.method }

// Request is the request.
func (e Exchange) Request() []byte { return e.request }
