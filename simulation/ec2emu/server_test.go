package ec2emu

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer is a server whose world has no delays.
func newServer(t *testing.T, o Options) *Server {
	t.Helper()
	o.World.Knobs.Cooldown = world.CooldownOff
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// answered is an answer as text.
type answered struct {
	status int
	header http.Header
	body   string
}

func (a answered) has(t *testing.T, status int, part string) {
	t.Helper()
	if a.status != status || !strings.Contains(a.body, part) {
		t.Errorf("answered %d %s, want %d and %q in it", a.status, a.body, status, part)
	}
}

// post sends a form as an SDK does, without a signature.
func post(ctx context.Context, transport http.RoundTripper, form string) (answered, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://ec2.emulated/", strings.NewReader(form))
	if err != nil {
		return answered{}, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	return send(transport, r)
}

func send(transport http.RoundTripper, r *http.Request) (answered, error) {
	response, err := transport.RoundTrip(r)
	if err != nil {
		return answered{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answered{response.StatusCode, response.Header, string(body)}, err
}

func mustPost(t *testing.T, s *Server, form string) answered {
	t.Helper()
	a, err := post(t.Context(), s.RoundTripper(), form)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const (
	createForm   = "Action=CreateVolume&Version=2016-11-15&AvailabilityZone=us-west-2a&Size=1&VolumeType=gp3"
	describeForm = "Action=DescribeVolumes&Version=2016-11-15"
)

func TestServer_answersPostAndGet(t *testing.T) {
	s := newServer(t, Options{})
	made := mustPost(t, s, createForm)
	made.has(t, http.StatusOK, `<CreateVolumeResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>`)
	if id := made.header.Get("X-Amzn-Requestid"); id == "" || !strings.Contains(made.body, "<requestId>"+id+"</requestId>") {
		t.Errorf("request ID %q of the header is not that of the answer %s", id, made.body)
	}
	if kind := made.header.Get("Content-Type"); kind != "text/xml;charset=UTF-8" {
		t.Errorf("content type %q", kind)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://ec2.emulated/base/path?"+describeForm, http.NoBody)
	got, err := send(s.RoundTripper(), r)
	if err != nil {
		t.Fatal(err)
	}
	got.has(t, http.StatusOK, "<volumeSet><item><volumeId>vol-")
}

func TestServer_refusesCallsThatAreNotOfTheProtocol(t *testing.T) {
	s := newServer(t, Options{})
	for name, c := range map[string]struct{ form, code string }{
		"no action":         {"Version=2016-11-15", "MissingAction"},
		"unknown action":    {"Action=RunInstances&Version=2016-11-15", "InvalidAction"},
		"no version":        {"Action=DescribeVolumes", "MissingParameter"},
		"another version":   {"Action=DescribeVolumes&Version=2014-10-01", "NoSuchVersion"},
		"unknown parameter": {"Action=DescribeVolumes&Version=2016-11-15&Colour=red", "UnknownParameter"},
		"broken escapes":    {"Action=DescribeVolumes&Version=%zz", "MalformedQueryString"},
		"an endless body":   {"Action=DescribeVolumes&Version=" + strings.Repeat("x", maximumBody), "MalformedQueryString"},
	} {
		t.Run(name, func(t *testing.T) {
			mustPost(t, s, c.form).has(t, http.StatusBadRequest, "<Response><Errors><Error><Code>"+c.code+"</Code>")
		})
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://ec2.emulated/?"+describeForm, http.NoBody)
	got, err := send(s.RoundTripper(), r)
	if err != nil {
		t.Fatal(err)
	}
	got.has(t, http.StatusMethodNotAllowed, "InvalidRequest")
	if n := len(s.Statistics().Actions); n > 3 {
		t.Errorf("clients made %d actions up, want them counted together: %v", n, s.Statistics().Actions)
	}
}

func TestServer_dryRunSaysWhatWouldHaveBeen(t *testing.T) {
	s := newServer(t, Options{})
	mustPost(t, s, createForm+"&DryRun=true").has(t, http.StatusPreconditionFailed, "<Code>DryRunOperation</Code>")
	if a := s.Statistics().Actions["CreateVolume"]; a.DryRuns != 1 || a.Codes["DryRunOperation"] != 1 {
		t.Errorf("counted %+v, want one dry run", a)
	}
}

func TestServer_throttles(t *testing.T) {
	s := newServer(t, Options{Knobs: Knobs{Throttling: Throttling{Buckets: map[string]Bucket{"CreateVolume": {Burst: 2, Refill: 0.001}}}}})
	for range 2 {
		mustPost(t, s, createForm).has(t, http.StatusOK, "CreateVolumeResponse")
	}
	mustPost(t, s, createForm).has(t, http.StatusServiceUnavailable, "<Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message>")
	mustPost(t, s, describeForm).has(t, http.StatusOK, "DescribeVolumesResponse")
	statistics := s.Statistics()
	if statistics.Calls("CreateVolume") != 3 || statistics.Throttled("CreateVolume") != 1 || statistics.Throttled("") != 1 {
		t.Errorf("counted %+v", statistics.Actions)
	}
	s.Reset()
	mustPost(t, s, createForm).has(t, http.StatusOK, "CreateVolumeResponse")
}

// In virtual time: the call of a client that leaves in the first half of the latency has no
// effect; a client that leaves in the second half has created a volume and does not get
// its ID.
func TestServer_takesHalfOfTheLatencyBeforeAndHalfAfter(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		volumes int
		err     error
	}{
		"in time":     {time.Second, 1, nil},
		"first half":  {40 * time.Millisecond, 0, context.DeadlineExceeded},
		"second half": {60 * time.Millisecond, 1, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, Options{Knobs: Knobs{Latency: map[string]world.Takes{"CreateVolume": world.Fixed(100 * time.Millisecond)}}})
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				start := time.Now()
				if _, err := post(ctx, s.RoundTripper(), createForm); !errors.Is(err, c.err) {
					t.Errorf("error %v, want %v", err, c.err)
				}
				if took, want := time.Since(start), min(c.timeout, 100*time.Millisecond); took != want {
					t.Errorf("took %v, want %v", took, want)
				}
				if got := strings.Count(mustPost(t, s, describeForm).body, "<volumeId>"); got != c.volumes {
					t.Errorf("%d volumes, want %d", got, c.volumes)
				}
			})
		})
	}
}

func TestServer_dropsConnections(t *testing.T) {
	for kind, volumes := range map[string]int{FaultDrop: 0, FaultDropReply: 1} {
		t.Run(kind, func(t *testing.T) {
			s := newServer(t, Options{})
			if _, err := s.AddFault(Fault{Kind: kind, Action: "CreateVolume", Count: 2}); err != nil {
				t.Fatal(err)
			}
			if _, err := post(t.Context(), s.RoundTripper(), createForm); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("in process: error %v, want a reset connection", err)
			}
			address := listen(t, s.Serve)
			transport := &http.Transport{DisableKeepAlives: true}
			defer transport.CloseIdleConnections()
			form, err := url.ParseQuery(createForm)
			if err != nil {
				t.Fatal(err)
			}
			client := http.Client{Transport: transport}
			if answer, err := client.PostForm("http://"+address, form); err == nil {
				t.Errorf("over TCP: answered %s, want a closed connection", answer.Status)
				_ = answer.Body.Close()
			}
			if got := strings.Count(mustPost(t, s, describeForm).body, "<volumeId>"); got != 2*volumes {
				t.Errorf("%d volumes, want %d", got, 2*volumes)
			}
			if a := s.Statistics().Actions["CreateVolume"]; a.Codes[CodeDropped] != 2 {
				t.Errorf("counted %+v, want two dropped", a)
			}
		})
	}
}

// listen serves on a free port of loopback until the test ends.
func listen(t *testing.T, serve func(context.Context, net.Listener) error) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func TestServer_sendsSlowBodies(t *testing.T) {
	start := time.Now()
	body, err := io.ReadAll(slowBody(t, 80*time.Millisecond))
	if err != nil || !strings.HasSuffix(string(body), "</DescribeVolumesResponse>") {
		t.Errorf("body %q, %v", body, err)
	}
	if took := time.Since(start); took < 80*time.Millisecond {
		t.Errorf("it took %v; want 80ms", took)
	}
	slowBody(t, time.Hour) // the head does not wait for it
}

// slowBody is the body of an answer whose head has come, of a server that takes
// so long for the rest.
func slowBody(t *testing.T, delay time.Duration) io.Reader {
	t.Helper()
	s := newServer(t, Options{})
	if _, err := s.AddFault(Fault{Kind: FaultSlowBody, Action: "DescribeVolumes", Delay: world.Span(delay)}); err != nil {
		t.Fatal(err)
	}
	address := listen(t, s.Serve)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/?"+describeForm, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response.Body
}

func TestServer_hasAFaultForOneResource(t *testing.T) {
	s := newServer(t, Options{})
	if _, err := s.AddFault(Fault{Kind: FaultError, Resource: "vol-0123456789abcdef0", Code: "IncorrectState", Status: 400}); err != nil {
		t.Fatal(err)
	}
	mustPost(t, s, "Action=DeleteVolume&Version=2016-11-15&VolumeId=vol-0123456789abcdef1").has(t, 400, "InvalidVolume.NotFound")
	mustPost(t, s, "Action=DeleteVolume&Version=2016-11-15&VolumeId=vol-0123456789abcdef0").has(t, 400, "IncorrectState")
	if calls := s.Journal(0); len(calls) != 2 || calls[1].Fault == "" || calls[1].Executed || calls[1].Resources[0] != "vol-0123456789abcdef0" {
		t.Errorf("journal %+v", calls)
	}
}

func TestServer_asksWhoCalls(t *testing.T) {
	const good = "AWS4-HMAC-SHA256 Credential=AKID/20260102/us-west-2/ec2/aws4_request, SignedHeaders=host, Signature=00"
	for name, c := range map[string]struct {
		auth   Auth
		header string
		status int
		code   string
	}{
		"nothing asked, nothing said":   {Auth{}, "", 200, ""},
		"nothing asked, garbage said":   {Auth{}, "Basic x", 200, ""},
		"a signature asked, none":       {Auth{Required: true}, "", 403, "MissingAuthenticationToken"},
		"a signature asked, garbage":    {Auth{Required: true}, "Basic x", 400, "IncompleteSignature"},
		"a signature asked, half":       {Auth{Required: true}, "AWS4-HMAC-SHA256 Credential=AKID", 400, "IncompleteSignature"},
		"a signature asked and given":   {Auth{Required: true}, good, 200, ""},
		"the right region":              {Auth{Region: "us-west-2"}, good, 200, ""},
		"the wrong region":              {Auth{Region: "eu-west-1"}, good, 401, "AuthFailure"},
		"a known key":                   {Auth{AccessKeys: []string{"AKID"}}, good, 200, ""},
		"an unknown key":                {Auth{AccessKeys: []string{"other"}}, good, 401, "AuthFailure"},
		"expired credentials":           {Auth{Expired: true}, good, 400, "RequestExpired"},
		"a clock that is wrong":         {Auth{Skew: world.Span(time.Minute)}, good, 400, "RequestExpired"},
		"an action that is not allowed": {Auth{Denied: []string{"DescribeVolumes"}}, good, 403, "UnauthorizedOperation"},
		"another that is not allowed":   {Auth{Denied: []string{"CreateVolume"}}, good, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, Options{Knobs: Knobs{Auth: c.auth}})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://ec2.emulated/?"+describeForm, http.NoBody)
			r.Header.Set("X-Amz-Date", "20260102T030405Z")
			if c.header != "" {
				r.Header.Set("Authorization", c.header)
			}
			got, err := send(s.RoundTripper(), r)
			if err != nil {
				t.Fatal(err)
			}
			got.has(t, c.status, c.code)
			if c.header == good && s.Journal(0)[0].Caller != "AKID" {
				t.Errorf("journal %+v, want the caller AKID", s.Journal(0))
			}
		})
	}
}

func TestJournal_keepsTheLastCalls(t *testing.T) {
	s := newServer(t, Options{Journal: 3})
	for range 5 {
		mustPost(t, s, describeForm)
	}
	var numbers []uint64
	for _, c := range s.Journal(3) {
		numbers = append(numbers, c.Number)
	}
	if len(s.Journal(0)) != 3 || len(numbers) != 2 || numbers[0] != 4 || numbers[1] != 5 {
		t.Errorf("%d calls kept, those after the third are %v", len(s.Journal(0)), numbers)
	}
	s.Reset()
	mustPost(t, s, describeForm)
	if calls := s.Journal(0); len(calls) != 1 || calls[0].Number != 6 {
		t.Errorf("after a reset: %+v", calls)
	}
}
