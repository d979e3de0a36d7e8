package ebs

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/test/ebs/lab"
	"github.com/holdfast-csi/holdfast/test/otlp"
	"github.com/holdfast-csi/holdfast/test/surfaces"
)

// The marks of the planted credentials; openMark is what the endpoint says next to them.
const (
	openMark    = "openmarker4720"
	markKey     = "AKIAMARKER4721KEY"
	markSecret  = "marker4722ofthesecretkey"
	markToken   = "marker4723ofthesession"
	markIMDS    = "marker4724ofthemetadata"
	markOfCalls = "marker4725ofcalls"
	markTokens  = "marker4726ofserviceaccount"
)

func awsMarks() []string {
	return []string{markKey, markSecret, markToken, markIMDS, markOfCalls, markTokens}
}

// metadataService is an instance metadata service that gives a role's credentials to those
// who have its token.
func (b *bench) metadataService() string {
	role := map[string]string{
		"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": markKey, "SecretAccessKey": markSecret, "Token": markToken + "/+==",
		"LastUpdated": time.Now().UTC().Format(time.RFC3339), "Expiration": time.Now().Add(6 * time.Hour).UTC().Format(time.RFC3339),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case r.Method == http.MethodPut && path == "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
			_, _ = io.WriteString(w, markIMDS)
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != markIMDS:
			w.WriteHeader(http.StatusUnauthorized)
		case path == "/latest/meta-data/iam/security-credentials/":
			_, _ = io.WriteString(w, "role")
		case path == "/latest/meta-data/iam/security-credentials/role":
			_ = json.NewEncoder(w).Encode(role)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	b.Cleanup(server.Close)
	return server.URL
}

// indiscreet is a proxy before EC2 that refuses the first request to create and the first to
// attach a volume, and shows what it refuses. It counts the requests that were signed with the role's credentials.
func (b *bench) indiscreet(signed *atomic.Int64) string {
	target, err := url.Parse(b.Endpoint())
	b.must(err)
	forward := httputil.NewSingleHostReverseProxy(target)
	var refused sync.Map // actions
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Security-Token") == markToken+"/+==" {
			signed.Add(1)
		}
		shown, _ := httputil.DumpRequest(r, true)
		action := regexp.MustCompile(`Action=(CreateVolume|AttachVolume)&`).FindString(string(shown))
		if _, before := refused.LoadOrStore(action, true); before || action == "" {
			forward.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		message := fmt.Sprintf("%s: %s; %x; %q; secret %s", openMark, shown, shown, shown, markSecret)
		_, _ = fmt.Fprintf(w, "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>%s</Message></Error></Errors></Response>",
			html.EscapeString(message))
	}))
	b.Cleanup(server.Close)
	return server.URL
}

// addresses are free ones.
func (b *bench) addresses(n int) (all []string) {
	b.Helper()
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		b.must(err)
		defer func() { _ = listener.Close() }()
		all = append(all, listener.Addr().String())
	}
	return all
}

// shows adds what a process shows: its log, its metrics, and what the kernel has of it.
func (b *bench) shows(s surfaces.Surfaces, name, metrics string, p *lab.Process) {
	b.Helper()
	log, err := p.Log()
	b.must(err)
	s["log of the "+name] = []byte(log)
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		answer, err := http.Get("http://" + metrics + path)
		b.must(err)
		data, err := httputil.DumpResponse(answer, true)
		b.must(err)
		_ = answer.Body.Close()
		s[path+" of the "+name] = data
	}
	for _, file := range []string{"cmdline", "environ"} {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID()), file))
		b.must(err)
		s[file+" of the "+name] = data
	}
}

// No surface of the driver shows a credential: keys and session token of an instance's role,
// the token of the metadata service, the secrets of calls and the tokens of service accounts.
// The log has every request to EC2, and a proxy shows what it refuses.
func (b *bench) showsNoSecret() {
	var signed atomic.Int64
	instance, shown, traces := lab.Pair()[0], surfaces.Surfaces{}, otlp.Receive(b, "127.0.0.1:0")
	ports := b.addresses(2)
	environment := append(os.Environ(), "AWS_REGION=us-west-2", "AWS_EC2_METADATA_SERVICE_ENDPOINT="+b.metadataService(),
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+traces.Address, "OTEL_BSP_SCHEDULE_DELAY=50", "HOLDFAST_TEST_OPEN="+openMark)
	common := []string{"--log-level=debug"}
	controller := b.launch(lab.Launch{
		Name: "controller", Mode: []string{"controller"}, User: unprivileged, Environment: environment,
		Flags: append(common, "--ec2-endpoint="+b.indiscreet(&signed), "--aws-sdk-debug-log", "--metrics-address="+ports[0]),
	})
	node := b.launch(lab.Launch{
		Name: "node", Mode: []string{"node"}, Environment: environment, Flags: append(append(common, b.NodeFlags(instance)...), "--device-wait=500ms", "--metrics-address="+ports[1]),
	})
	secrets := map[string]string{"password": `it's "` + markOfCalls + `"`}
	volumeContext := map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": `{"sts.amazonaws.com":{"token":"` + markTokens + `","expirationTimestamp":"2040-01-01T00:00:00Z"}}`}
	said := 0
	keep := func(err error) {
		if err != nil {
			said++
			shown[fmt.Sprintf("error %d", said)] = []byte(err.Error())
		}
	}
	request := &csi.CreateVolumeRequest{
		Name: openMark, CapacityRange: &csi.CapacityRange{RequiredBytes: gibibyte}, VolumeCapabilities: []*csi.VolumeCapability{writer()}, Secrets: secrets,
	}
	var volume *csi.Volume
	b.eventually("a volume is created", func() bool {
		var err error
		volume, err = controller.Client.CreateVolume(b.Context(), request)
		keep(err)
		return err == nil
	})
	var published map[string]string
	b.eventually("the volume is attached", func() bool {
		var err error
		published, err = controller.Client.ControllerPublishVolume(b.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId: volume.GetVolumeId(), NodeId: instance.ID, VolumeCapability: writer(), Secrets: secrets, VolumeContext: volumeContext,
		})
		keep(err)
		return err == nil
	})
	p := b.nodeVolume(node, volume.GetVolumeId())
	p.published = published
	stage := &csi.NodeStageVolumeRequest{
		VolumeId: p.volume, PublishContext: published, StagingTargetPath: p.staging, VolumeCapability: writer(), Secrets: secrets, VolumeContext: volumeContext,
	}
	publish := &csi.NodePublishVolumeRequest{
		VolumeId: p.volume, PublishContext: published, StagingTargetPath: p.staging, TargetPath: p.target, VolumeCapability: writer(), Secrets: secrets, VolumeContext: volumeContext,
	}
	keep(node.Client.NodePublishVolume(b.Context(), publish)) // it is not staged
	b.must(node.Client.NodeStageVolume(b.Context(), stage))
	b.must(node.Client.NodePublishVolume(b.Context(), publish))
	// A caller that has the secret in other fields, too.
	hostile := &csi.NodePublishVolumeRequest{
		VolumeId: p.volume, StagingTargetPath: p.staging, TargetPath: "relative/" + markTokens, VolumeCapability: writer(), Secrets: map[string]string{"t": markTokens},
	}
	keep(node.Client.NodePublishVolume(b.Context(), hostile))
	p.leave()
	p.detached(controller, instance.ID)
	b.must(controller.Client.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: p.volume, Secrets: secrets}))
	b.eventually("the traces are there", func() bool { return surfaces.Find(traces.Text(), openMark) != "" })
	b.shows(shown, "controller", ports[0], controller)
	b.shows(shown, "node", ports[1], node)
	shown["the traces"] = traces.Text()
	shown.Hides(b, awsMarks()...)
	shown.Shows(b, openMark, "error", "log of the controller", "the traces", "environ of the controller", "environ of the node")
	shown.Shows(b, p.volume, "log of the node")
	if signed.Load() == 0 {
		b.Error("no request was signed with the credentials of the role")
	}
	if said < 4 {
		b.Errorf("only %d errors", said)
	}
	leavesNothing(b.T, b.Lab)
}
