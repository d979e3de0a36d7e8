package cloud

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
)

// A proxy that ends TLS, or an endpoint of a private cloud, has a certificate of
// its own authority.
func TestNew_trustsTheAuthoritiesOfAWSCABundle(t *testing.T) {
	var answered atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answered.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(bundle, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", bundle)
	c, err := New(t.Context(), Options{Endpoint: server.URL, Region: "us-west-2", Credentials: StaticCredentials("id", "secret")})
	if err != nil {
		t.Fatal(err)
	}
	// A certificate that is not trusted is tried again until the context ends.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Volume(ctx, "vol-0123456789abcdef0"); err == nil || answered.Load() == 0 {
		t.Errorf("%d requests were answered; %v", answered.Load(), err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	server.CloseClientConnections()
}

// Without the instance metadata service the region is that of the Node's label.
func TestNew_asksTheOtherSourceForTheRegion(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	for _, one := range []struct {
		find func(context.Context) (string, error)
		want string // in the error
	}{
		{func(context.Context) (string, error) { return "eu-central-1", nil }, ""},
		{func(context.Context) (string, error) { return "", errors.New("may not get nodes") }, "may not get nodes"},
		{func(context.Context) (string, error) { return "", nil }, "topology.kubernetes.io/region"},
		{nil, "AWS_REGION"},
	} {
		c, err := New(t.Context(), Options{FindRegion: one.find, Credentials: StaticCredentials("id", "secret"), HTTPClient: empty{}})
		switch {
		case err == nil && one.want == "":
			if c.region != "eu-central-1" {
				t.Errorf("the region is %q", c.region)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		case err == nil || one.want == "" || !strings.Contains(err.Error(), one.want):
			t.Errorf("%v; want it to say %q", err, one.want)
		}
	}
}

// Dashboards and alerts for the AWS EBS CSI driver select by these labels.
func TestMetrics_haveTheLabelsOfTheOtherDriver(t *testing.T) {
	registry := prometheus.NewRegistry()
	emulated(t, bench(), Options{Registerer: registry}, func(t *testing.T, r *rig) {
		r.fault(t, ec2emu.Fault{Kind: ec2emu.FaultThrottle, Action: "CreateVolume", Count: 1})
		r.fault(t, ec2emu.Fault{Kind: ec2emu.FaultError, Action: "CreateVolume", Code: "InvalidParameterValue", Status: http.StatusBadRequest, Count: 1})
		_, _ = r.create(r.ctx, "pvc-1")
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				name := family.GetName()
				for _, label := range metric.GetLabel() {
					name += " " + label.GetName() + "=" + label.GetValue()
				}
				got[name] = true
			}
		}
		for _, want := range []string{
			"aws_ebs_csi_api_request_throttles_total operation_name=CreateVolume",
			"aws_ebs_csi_api_request_errors_total code=InvalidParameterValue request=CreateVolume",
		} {
			if !got[want] {
				t.Errorf("no %s in %v", want, got)
			}
		}
		if got["aws_ebs_csi_api_request_duration_seconds request=CreateVolume"] {
			t.Error("the duration of requests that failed is counted; the other driver counts those that succeeded")
		}
	})
}
