package metadata

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

const (
	id       = "i-0123456789abcdef0"
	document = `{"instanceId":"` + id + `","instanceType":"m5.large","region":"us-east-1","availabilityZone":"us-east-1a","accountId":"123456789012"}`
)

// service is an IMDS of fixed answers; paths that it lacks are 404.
type service struct {
	answers map[string]string
	macs    atomic.Pointer[string]
	tokens  atomic.Int64
	refuse  int // status of every answer, unless 0
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.refuse != 0:
		w.WriteHeader(s.refuse)
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
		s.tokens.Add(1)
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
		_, _ = w.Write([]byte("token"))
	case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "token":
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/latest/meta-data/network/interfaces/macs":
		_, _ = w.Write([]byte(*s.macs.Load()))
	default:
		answer, found := s.answers[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(answer))
	}
}

func serve(t *testing.T, s *service) string {
	t.Helper()
	one := "0e:00:00:00:00:01/\n"
	s.macs.CompareAndSwap(nil, &one)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
}

func TestIMDS_readsTheInstance(t *testing.T) {
	macs := "0e:00:00:00:00:01/\n0e:00:00:00:00:02/"
	s := &service{answers: map[string]string{
		"/latest/dynamic/instance-identity/document":       document,
		"/latest/meta-data/placement/availability-zone-id": "use1-az6",
		"/latest/meta-data/outpost-arn":                    "arn:aws:outposts:us-east-1:123456789012:outpost/op-0123456789abcdef0",
	}}
	s.macs.Store(&macs)
	got, err := NewIMDS(serve(t, s)).Instance(t.Context())
	want := Instance{ID: id, Type: "m5.large", Region: "us-east-1", Zone: "us-east-1a", ZoneID: "use1-az6",
		OutpostARN: "arn:aws:outposts:us-east-1:123456789012:outpost/op-0123456789abcdef0", Interfaces: 2, Source: "imds"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	if tokens := s.tokens.Load(); tokens != 1 {
		t.Errorf("%d tokens for one instance", tokens)
	}
}

// The number of interfaces is read each time, the rest once. If the number cannot be read,
// the last one stays.
func TestChain_countsInterfacesEachTime(t *testing.T) {
	s := &service{answers: map[string]string{"/latest/dynamic/instance-identity/document": document}}
	url := serve(t, s)
	c := NewChain(Options{Sources: []Source{NewIMDS(url)}})
	first, err := c.Instance(t.Context())
	if err != nil || first.Interfaces != 1 || first.ZoneID != "" || first.OutpostARN != "" {
		t.Fatalf("%+v, %v", first, err)
	}
	three := "a/\nb/\nc/\n"
	s.macs.Store(&three)
	s.answers = nil
	for range 2 {
		if now, err := c.Instance(t.Context()); err != nil || now.Interfaces != 3 || now.ID != id {
			t.Fatalf("%+v, %v", now, err)
		}
		s.refuse = http.StatusForbidden
	}
}

// The warning about a source that does not answer names it and the hop limit, and the next
// source is asked.
func TestChain_continuesWithTheNextSource(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers, as behind a hop limit
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	node := object{providerID: "aws:///us-east-1b/" + id, labels: map[string]string{labelType: "c7i.large"}}
	c := NewChain(Options{Sources: []Source{NewIMDS("http://" + silent.Addr().String()), Kubernetes{Object: node}}, Timeout: 200 * time.Millisecond})
	got, err := c.Instance(t.Context())
	want := Instance{ID: id, Type: "c7i.large", Zone: "us-east-1b", Source: "kubernetes"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
}

func TestChain_namesTheHopLimitWhenNoSourceAnswers(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := NewChain(Options{Timeout: 100 * time.Millisecond, Sources: []Source{
		NewIMDS("http://" + silent.Addr().String()), Kubernetes{Object: object{providerID: "kind://docker/x/y"}}}})
	_, err = c.Instance(t.Context())
	if !errors.Is(err, backend.ErrUnavailable) {
		t.Fatal(err)
	}
	for _, hint := range []string{"hop limit", "--http-put-response-hop-limit 2", "--metadata-sources=kubernetes", `"kind://docker/x/y"`} {
		if !strings.Contains(err.Error(), hint) {
			t.Errorf("%v does not say %s", err, hint)
		}
	}
}

func TestIMDS_explainsItsErrors(t *testing.T) {
	_, err := NewIMDS(serve(t, &service{refuse: http.StatusForbidden})).Instance(t.Context())
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "--http-endpoint enabled") {
		t.Error(err)
	}
	_, err = NewIMDS(serve(t, &service{answers: map[string]string{"/latest/dynamic/instance-identity/document": "{}"}})).Instance(t.Context())
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "availabilityZone") {
		t.Error(err)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	_, err = NewIMDS("http://127.0.0.1:1").Instance(t.Context())
	if !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "AWS_EC2_METADATA_DISABLED") {
		t.Error(err)
	}
}

// object is a Node object of fixed content.
type object struct {
	providerID string
	labels     map[string]string
	err        error
}

func (o object) Node(context.Context) (string, map[string]string, error) {
	return o.providerID, o.labels, o.err
}

func TestKubernetes_readsTheNodeObject(t *testing.T) {
	labels := map[string]string{labelType: "m5.large", labelZone: "us-east-1a", labelRegion: "us-east-1", labelZoneID: "use1-az6", LabelInterfaces: "4"}
	got, err := Kubernetes{Object: object{providerID: "aws:///us-east-1a/" + id, labels: labels}}.Instance(t.Context())
	want := Instance{ID: id, Type: "m5.large", Region: "us-east-1", Zone: "us-east-1a", ZoneID: "use1-az6", Interfaces: 4, Source: "kubernetes"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	for _, bad := range []object{
		{providerID: "gce://project/zone/name"}, {providerID: "aws:///us-east-1a/"}, {providerID: ""},
		{providerID: "aws:///us-east-1a/hyperpod-abc-" + id}, {providerID: "aws:///" + id},
	} {
		if found, err := (Kubernetes{Object: bad}).Instance(t.Context()); !errors.Is(err, backend.ErrPrecondition) {
			t.Errorf("%q: %+v, %v", bad.providerID, found, err)
		}
	}
	hyperpod := object{providerID: "aws:///usw2-az2/sagemaker/cluster/hyperpod-abc-" + id}
	if _, err := (Kubernetes{Object: hyperpod}).Instance(t.Context()); err == nil || !strings.Contains(err.Error(), "HyperPod are not served") {
		t.Error(err)
	}
	if _, err := (Kubernetes{Object: object{err: context.DeadlineExceeded}}).Instance(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// The controller may label the Node after the node's process has asked first.
func TestChain_readsTheLabelOfALabelledNodeEachTime(t *testing.T) {
	node := object{providerID: "aws:///us-east-1a/" + id, labels: map[string]string{}}
	c := NewChain(Options{Sources: []Source{Kubernetes{Object: node, Labelled: true}}})
	for _, step := range []struct {
		label string
		want  int
	}{{"", 1}, {"3", 3}, {"none", 1}, {"2", 2}} {
		node.labels[LabelInterfaces], node.labels[LabelVolumes] = step.label, "2"
		got, err := c.Instance(t.Context())
		if err != nil || got.Interfaces != step.want || got.Volumes != 2 || got.Source != "metadata-labeler" {
			t.Errorf("label %q: %+v (%v); want %d interfaces and 2 volumes", step.label, got, err, step.want)
		}
	}
}

func TestChain_prefersWhatIsGiven(t *testing.T) {
	given := Instance{ID: "i-01234567", Type: "m5.large", Zone: "eu-west-1c"}
	got, err := NewChain(Options{Given: given}).Instance(t.Context())
	if err != nil || got.ID != given.ID || got.Zone != given.Zone || got.Source != "flags" {
		t.Fatalf("%+v, %v", got, err)
	}
	node := Kubernetes{Object: object{providerID: "aws:///us-east-1a/" + id, labels: map[string]string{LabelInterfaces: "2"}}}
	c := NewChain(Options{Given: Instance{Type: "t3.micro", Interfaces: 7}, Sources: []Source{node}})
	for range 2 {
		if got, err = c.Instance(t.Context()); err != nil || got.ID != id || got.Type != "t3.micro" || got.Interfaces != 7 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, err := NewChain(Options{Given: Instance{ID: "node-1", Type: "x", Zone: "y"}}).Instance(t.Context()); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
	if _, err := NewChain(Options{}).Instance(t.Context()); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}

func TestChain_endsWithItsCaller(t *testing.T) {
	c := NewChain(Options{Sources: []Source{waiting{}}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	done := make(chan error, 2)
	for range 2 {
		go func() { _, err := c.Instance(ctx); done <- err }()
	}
	for range 2 {
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

type waiting struct{}

func (waiting) Name() string { return "waiting" }
func (waiting) Instance(ctx context.Context) (Instance, error) {
	<-ctx.Done()
	return Instance{}, ctx.Err()
}
