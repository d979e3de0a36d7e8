package ec2emu

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const testInstance = "i-0123456789abcdef0"

// ask is one request to the metadata service; headers are name and value by turns.
func ask(ctx context.Context, t *testing.T, handler http.Handler, method, path string, headers ...string) (answered, error) {
	t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, "http://169.254.169.254/latest/"+path, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return send(roundTripper{handler}, r)
}

func withInstance(t *testing.T, k Metadata) (*Server, http.Handler) {
	t.Helper()
	s := newServer(t, Options{Knobs: Knobs{Metadata: k}})
	if _, err := s.World().RunInstance(world.InstanceSpec{ID: testInstance, Type: "m5.large", Zone: "us-west-2b"}); err != nil {
		t.Fatal(err)
	}
	return s, s.Metadata(testInstance)
}

func mustAsk(t *testing.T, handler http.Handler, method, path string, headers ...string) answered {
	t.Helper()
	a, err := ask(t.Context(), t, handler, method, path, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestMetadata_givesTokensThatEnd(t *testing.T) {
	s, handler := withInstance(t, Metadata{TokensRequired: true})
	mustAsk(t, handler, http.MethodGet, "meta-data/instance-id").has(t, http.StatusUnauthorized, "")
	issued := mustAsk(t, handler, http.MethodPut, "api/token", ttlHeader, "300")
	issued.has(t, http.StatusOK, "")
	if ttl := issued.header.Get(ttlHeader); ttl != "300" {
		t.Errorf("the header with the lifetime is %q, want it echoed", ttl)
	}
	mustAsk(t, handler, http.MethodGet, "meta-data/instance-id", tokenHeader, issued.body).has(t, http.StatusOK, testInstance)
	mustAsk(t, handler, http.MethodGet, "meta-data/instance-id", tokenHeader, "made up").has(t, http.StatusUnauthorized, "")
	mustAsk(t, s.Metadata("i-0123456789abcdef1"), http.MethodGet, "meta-data/instance-id", tokenHeader, issued.body).
		has(t, http.StatusNotFound, "")
	if err := s.World().Advance(301 * time.Second); err != nil {
		t.Fatal(err)
	}
	mustAsk(t, handler, http.MethodGet, "meta-data/instance-id", tokenHeader, issued.body).has(t, http.StatusUnauthorized, "")
}

func TestMetadata_refusesTokenRequestsThatAreWrong(t *testing.T) {
	_, handler := withInstance(t, Metadata{})
	for name, c := range map[string]struct {
		method  string
		headers []string
		status  int
	}{
		"no lifetime":     {http.MethodPut, nil, http.StatusBadRequest},
		"zero":            {http.MethodPut, []string{ttlHeader, "0"}, http.StatusBadRequest},
		"above six hours": {http.MethodPut, []string{ttlHeader, "21601"}, http.StatusBadRequest},
		"through a proxy": {http.MethodPut, []string{ttlHeader, "60", "X-Forwarded-For", "10.0.0.1"}, http.StatusForbidden},
		"a GET":           {http.MethodGet, nil, http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			mustAsk(t, handler, c.method, "api/token", c.headers...).has(t, c.status, "")
		})
	}
}

func TestMetadata_describesTheInstance(t *testing.T) {
	_, handler := withInstance(t, Metadata{})
	var document map[string]string
	if err := json.Unmarshal([]byte(mustAsk(t, handler, http.MethodGet, "dynamic/instance-identity/document").body), &document); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"instanceId": testInstance, "instanceType": "m5.large", "availabilityZone": "us-west-2b", "region": "us-west-2",
		"accountId": "123456789012",
	} {
		if document[key] != want {
			t.Errorf("identity document: %s is %q, want %q", key, document[key], want)
		}
	}
	if _, err := time.Parse(time.RFC3339, document["pendingTime"]); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{
		"meta-data/placement/region":               "us-west-2",
		"meta-data/placement/availability-zone":    "us-west-2b",
		"meta-data/placement/availability-zone-id": "usw2-az2",
		"meta-data/placement/":                     "availability-zone\navailability-zone-id\nregion",
		"meta-data/iam/security-credentials/":      emulatorRole,
		"meta-data/block-device-mapping":           "ami\nroot",
	} {
		if got := mustAsk(t, handler, http.MethodGet, path); got.status != http.StatusOK || got.body != want {
			t.Errorf("%s: %d %q, want %q", path, got.status, got.body, want)
		}
	}
	macs := mustAsk(t, handler, http.MethodGet, "meta-data/network/interfaces/macs")
	if macs.status != http.StatusOK || strings.Count(macs.body, ":") != 5 || !strings.HasSuffix(macs.body, "/") {
		t.Errorf("macs %q, want one address with a slash", macs.body)
	}
	mustAsk(t, handler, http.MethodGet, "meta-data/outpost-arn").has(t, http.StatusNotFound, "")
	mustAsk(t, handler, http.MethodGet, "meta-data/spot/instance-action").has(t, http.StatusNotFound, "")
	mustAsk(t, handler, http.MethodDelete, "meta-data/instance-id").has(t, http.StatusMethodNotAllowed, "")
}

func TestMetadata_canBeOutOfReach(t *testing.T) {
	_, handler := withInstance(t, Metadata{Disabled: true})
	mustAsk(t, handler, http.MethodPut, "api/token", ttlHeader, "300").has(t, http.StatusForbidden, "")

	_, handler = withInstance(t, Metadata{HopLimit: HopRefuse})
	if _, err := ask(t.Context(), t, handler, http.MethodPut, "api/token", ttlHeader, "300"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("error %v, want a reset connection", err)
	}
	mustAsk(t, handler, http.MethodGet, "meta-data/instance-id").has(t, http.StatusOK, testInstance)

	synctest.Test(t, func(t *testing.T) {
		_, handler := withInstance(t, Metadata{HopLimit: HopHang})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := ask(ctx, t, handler, http.MethodPut, "api/token", ttlHeader, "300"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want none before the client gives up", err)
		}
	})
}

func TestInstanceByAddress_asksTheFirstNetwork(t *testing.T) {
	which := InstanceByAddress(
		[]netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		[]string{"i-1", "i-2", "i-3"})
	for address, want := range map[string]string{
		"10.0.0.1:99": "i-1", "10.1.1.1:99": "i-2", "[fd00::1]:99": "i-3", "[::ffff:10.0.0.1]:99": "i-1", "192.0.2.1:99": "", "nonsense": "",
	} {
		if got := which(&http.Request{RemoteAddr: address}); got != want {
			t.Errorf("%s is %q, want %q", address, got, want)
		}
	}
}
