package cli

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/kube/live"
)

func page(t *testing.T, p *pages, path string) (code int, body string) {
	t.Helper()
	handler, found := p.page().Handlers[path]
	if !found {
		t.Fatalf("page %s does not exist", path)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return answer.Code, answer.Body.String()
}

func TestSidecars_reportThatTheyWaitForTheirDriver(t *testing.T) {
	f := &sidecarsFlags{
		address: "unix://" + filepath.Join(t.TempDir(), "csi.sock"), registrationDir: t.TempDir(), logger: slog.New(slog.DiscardHandler),
	}
	f.kube.elect, f.kube.limits.All.Timeout = true, time.Second
	process, err := newSidecarsProcess(f)
	if err != nil {
		t.Fatal(err)
	}
	defer process.first.Close()
	p := process.pages()
	if code, body := page(t, p, live.PathLive); code != http.StatusOK {
		t.Errorf("%s answers %d %q: a restart would not help", live.PathLive, code, body)
	}
	code, body := page(t, p, live.PathReady)
	for _, words := range []string{"[-] driver:", "[-] registration: waiting for the driver", "[-] controllers: waiting for the driver", "[+] lease: not waiting for a lease yet"} {
		if !strings.Contains(body, words) {
			t.Errorf("%s says %q, which lacks %q", live.PathReady, body, words)
		}
	}
	if code != http.StatusServiceUnavailable {
		t.Errorf("%s answers %d", live.PathReady, code)
	}
	if code, _ := page(t, p, live.PathDriver); code != http.StatusInternalServerError {
		t.Errorf("%s answers %d", live.PathDriver, code)
	}
}

// stuck are controllers in which nothing ends.
type stuck time.Duration

func (stuck) Describe() (string, error)                { return "serving", nil }
func (s stuck) Stuck() (queue string, _ time.Duration) { return "claims", time.Duration(s) }

func TestPages_liveUntilNothingEndsForLongerThanCallsMayTake(t *testing.T) {
	for since, want := range map[time.Duration]int{
		9 * time.Minute: http.StatusOK, 19 * time.Minute: http.StatusOK, 21 * time.Minute: http.StatusInternalServerError,
	} {
		p := &pages{probe: nil, facts: []live.Fact{{Name: "x", Describe: func() (string, error) { return "", errors.New("no") }}}}
		p.controlled(stuck(since), 2*time.Minute)
		if code, body := page(t, p, live.PathLive); code != want {
			t.Errorf("stuck for %v, it answers %d %q, want %d", since, code, body, want)
		}
	}
}
