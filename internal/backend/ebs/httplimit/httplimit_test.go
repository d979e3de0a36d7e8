package httplimit

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

type fixed string

func (f fixed) Do(*http.Request) (*http.Response, error) {
	return &http.Response{Body: io.NopCloser(iotest.OneByteReader(strings.NewReader(string(f))))}, nil
}

func TestClient_endsAnAnswerAtItsLimit(t *testing.T) {
	for text, fits := range map[string]bool{"": true, "abcd": true, "abcde": false, "abcdefgh": false} {
		response, err := Client{fixed(text), 4}.Do(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		got, err := io.ReadAll(response.Body)
		if string(got) != text[:min(len(text), 4)] || (err == nil) != fits {
			t.Errorf("%q: read %q, %v; want it whole: %t", text, got, err, fits)
		}
	}
}

// An empty or missing body of an error or a redirect has no limit to reach.
func TestClient_leavesAnAnswerWithoutABody(t *testing.T) {
	response, err := Client{noBody{}, 4}.Do(nil) //nolint:bodyclose // it has none
	if err != nil || response.Body != nil {
		t.Errorf("%+v, %v", response, err)
	}
}

type noBody struct{}

func (noBody) Do(*http.Request) (*http.Response, error) { return &http.Response{}, nil }
