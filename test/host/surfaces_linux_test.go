package host_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
	"github.com/holdfast-csi/holdfast/test/otlp"
	"github.com/holdfast-csi/holdfast/test/surfaces"
)

// shown collects what a machine shows.
type shown struct {
	*machine
	surfaces.Surfaces
	repeats         *csidriver.Repeats
	traces          *otlp.Receiver
	metrics, status string // addresses
}

// newShown starts a host with everything that it can show, and plants the secrets.
func newShown(t *testing.T) *shown {
	t.Helper()
	t.Setenv("HOLDFAST_TEST_OPEN", openMark)
	s := &shown{
		Surfaces: surfaces.Surfaces{}, traces: receive(t), repeats: &csidriver.Repeats{Times: 2, Remark: openMark},
		metrics: freeAddress(t), status: freeAddress(t),
	}
	s.machine = newMachine(t)
	token := filepath.Join(filepath.Dir(s.root), openMark)
	if err := os.WriteFile(token, []byte(secretOf(markOfPage)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.arguments = []string{
		"--metrics-address=" + s.metrics, "--metrics-volumes=20", "--status-address=" + s.status, "--status-token-file=" + token,
	}
	s.writeDriver(secondDriver)
	s.start()
	s.serveVendor(s.repeats.Before)
	s.mustRun("apply", "-f", writeManifest(t, planted()))
	return s
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// exercise has each call of the vendor's driver fail, and then succeed.
func (s *shown) exercise() {
	s.t.Helper()
	repeated := func(rpc string) {
		s.t.Helper()
		s.until(rpc+" is repeated", 2*limitOfTest, func() bool { return s.repeats.Count(rpc) > s.repeats.Times })
	}
	s.running(openMark)
	s.running(openMark + "-vendor")
	for _, rpc := range []string{"CreateVolume", "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"} {
		repeated(rpc)
	}
	s.say("create", "snapshot", openMark, "--of", openMark+"-vendor", "--class", "vendor")
	repeated("CreateSnapshot")
	s.say("resize", "pvc/"+openMark+"-vendor", "128Mi")
	repeated("ControllerExpandVolume")
	repeated("NodeExpandVolume")
}

// say runs a command and keeps what it says.
func (s *shown) say(words ...string) {
	s.t.Helper()
	code, said, complained := s.holdfast(words[0], words[1:]...)
	s.Surfaces["holdfast "+strings.Join(words, " ")] = fmt.Appendf(nil, "%s%s(exit code %d)", said, complained, code)
}

// commands adds what the commands say.
func (s *shown) commands() {
	kinds := []string{"all", "events"}
	for _, kind := range store.Kinds() {
		kinds = append(kinds, kind.Resource)
		s.say("describe", kind.Resource)
	}
	for _, kind := range kinds {
		for _, format := range []string{"yaml", "json", "wide", "jsonpath={.items[*]}", "go-template={{.}}"} {
			s.say("get", kind, "-o", format)
		}
	}
	vendor := openMark + "-vendor"
	for _, line := range []string{
		"describe drivers", "get drivers -o yaml", "get drivers -o wide", "why pod/" + openMark, "why pvc/" + vendor, "why snapshot/" + openMark, "why pod/stuck -o json",
		"why pvc/" + vendor + " -o json", "export --all", "exec " + openMark + " -- true", "top --once", "top --once -o json", "version",
	} {
		s.say(strings.Fields(line)...)
	}
	for _, text := range mistakes() {
		s.say("apply", "-f", writeManifest(s.t, text))
	}
	s.csi()
}

// csi calls the vendor's driver by hand, with secrets from a file.
func (s *shown) csi() {
	secret, err := json.Marshal(map[string]string{"password": secretOf(markOfCommand)})
	if err != nil {
		s.t.Fatal(err)
	}
	driver, socket := csidriver.New(vendorDriver), filepath.Join(s.t.TempDir(), "csi.sock")
	driver.Before = (&csidriver.Repeats{Times: 1000, Remark: openMark}).Before
	defer driver.Serve(listenUnix(s.t, socket))()
	for _, call := range []string{"NodeStageVolume", "NodePublishVolume", "CreateVolume", "ControllerPublishVolume"} {
		s.say("csi", call, "--endpoint", "unix://"+socket, "--no-check", "--secrets-from-file", writeManifest(s.t, string(secret)))
	}
}

// get adds the whole answer to a request, with its headers.
func (s *shown) get(client *http.Client, name, address string, header http.Header) (code int, body string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, address, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header = header
	answer, err := client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := httputil.DumpResponse(answer, true)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Surfaces[name] = data
	_, body, _ = strings.Cut(string(data), "\r\n\r\n")
	return answer.StatusCode, body
}

// answers adds what the API answers.
func (s *shown) answers() {
	client := &http.Client{Transport: s.client.Transport()}
	const own = "/apis/holdfast.dev/v1/"
	vendor := "default/" + openMark + "-vendor"
	paths := []string{
		"/version", "/healthz", "/api", "/apis", "/api/v1", own + "version", own + "journal", own + "journal?kind=PersistentVolumeClaim&key=" + vendor,
		own + "drivers", own + "goroutines", own + "activity", own + "progress", own + "pools", own + "state?kind=Pod&key=default/stuck",
		own + "state?kind=PersistentVolumeClaim&key=" + vendor, own + "mounts?pod=default/" + openMark, own + "stats?claim=" + vendor, "/api/v1/events",
	}
	for _, kind := range store.Kinds() {
		path := "/api/v1/" + kind.Resource
		if kind.Group != "" {
			path = "/apis/" + kind.GroupVersion().String() + "/" + kind.Resource
		}
		paths = append(paths, path)
		s.stream(client, "GET "+path+"?watch=true", "http://host"+path+"?watch=true&resourceVersion=0", nil)
	}
	for _, path := range paths {
		if code, body := s.get(client, "GET "+path, "http://host"+path, nil); code != http.StatusOK {
			s.t.Errorf("GET %s: %d %s", path, code, body)
		}
	}
	s.get(client, "GET a missing object", "http://host/api/v1/namespaces/default/secrets/none", nil)
	s.stream(client, "GET "+own+"journal?watch=true", "http://host"+own+"journal?watch=true&after=0", nil)
	s.pages(client, "the page at the socket", "http://host", nil)
}

// numbers adds the metrics in each format.
func (s *shown) numbers() {
	s.t.Helper()
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		for _, format := range []string{
			"text/plain", "application/openmetrics-text; version=1.0.0",
			"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
		} {
			s.get(http.DefaultClient, "the metrics: "+path+" as "+format, "http://"+s.metrics+path, http.Header{"Accept": {format}})
		}
	}
	s.Surfaces["the traces"] = s.traces.Text()
}

// files adds the files of the host, but not what is mounted for users.
func (s *shown) files() {
	s.t.Helper()
	err := filepath.WalkDir(s.root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || entry.Name() == store.SecretsKeyName {
			return err
		}
		data, err := os.ReadFile(name)
		s.Surfaces["file "+strings.TrimPrefix(name, s.root+"/")] = data
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	log, err := os.ReadFile(s.log.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	s.Surfaces["the log at debug"] = log
}

// programs adds what the kernel shows of the processes, but not of the containers.
func (s *shown) programs() {
	s.t.Helper()
	for name, pids := range map[string][]int{"the host": {s.host.Process.Pid}, "a driver": s.processes(), "a shim": s.shims()} {
		if len(pids) == 0 {
			s.t.Errorf("no process is %s", name)
		}
		for _, pid := range pids {
			for _, file := range []string{"cmdline", "environ", "comm", "mountinfo"} {
				data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
				if err != nil {
					s.t.Fatal(err)
				}
				s.Surfaces[fmt.Sprintf("%s of %s, process %d", file, name, pid)] = data
			}
		}
	}
}

// report adds the bug report, each of its files.
func (s *shown) report() {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "report.tar.gz")
	s.Surfaces["holdfast bugreport"] = []byte(s.mustRun("bugreport", "--yes", "-o", file))
	archive, err := os.Open(file)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	s.AddArchive(s.t, "the bug report", archive)
}

// collect has a name for each surface, and forgets those of before.
func (s *shown) collect() {
	s.t.Helper()
	s.Surfaces = surfaces.Surfaces{}
	s.commands()
	s.whyUntil("pod/stuck", "is not text in UTF-8")
	s.say("describe", "pod", "stuck")
	s.answers()
	s.page()
	s.numbers()
	s.report()
	s.programs()
	s.files()
}

// openSurfaces begin the names of surfaces that have the open mark: a secret would be found
// there.
func openSurfaces() []string {
	vendor := "default/" + openMark + "-vendor"
	return []string{
		"holdfast get all", "holdfast get events", "holdfast get persistentvolumeclaims -o yaml", "holdfast get pods -o json",
		"holdfast get secrets -o yaml", "holdfast describe persistentvolumeclaims", "holdfast describe pods", "holdfast why",
		"holdfast top --once", "holdfast top --once -o json", "holdfast export", "holdfast apply", "holdfast csi",
		"GET /apis/holdfast.dev/v1/journal", "GET /apis/holdfast.dev/v1/journal?kind", "GET /apis/holdfast.dev/v1/journal?watch",
		"GET /apis/holdfast.dev/v1/stats", "GET /api/v1/events", "GET /api/v1/secrets", "GET /api/v1/pods?watch",
		"the page /status/volumes", "the page /status/pods", "the page /status/pvc/" + vendor, "the page: stream of /status/volumes",
		"the page at the socket /status/pvc/", "the page at the socket: stream of /status/pvc/",
		"the metrics: /metrics as text", "the metrics: /metrics as application/openmetrics", "the metrics: /metrics as application/vnd",
		"the traces", "the bug report holdfast", "cmdline of the host", "environ of the host", "file host.db", "the log at debug",
	}
}

// No surface shows a secret: marks are planted where secrets enter, and everything that
// the host, its drivers and its commands write and say is searched for them. A vendor's
// driver repeats what it is given.
func TestSurfaces_showNoSecret(t *testing.T) {
	s := newShown(t)
	s.exercise()
	s.collect()
	s.Hides(t, marks()...)
	s.Shows(t, openMark, openSurfaces()...)
	// What a driver repeats is shown where its errors are, without the secret.
	for _, name := range []string{
		"holdfast describe persistentvolumeclaims", "the log at debug", "the traces", "GET /apis/holdfast.dev/v1/journal",
	} {
		if !strings.Contains(string(s.Surfaces[name]), openMark+": login -p (redacted)") {
			t.Errorf("%s does not have the driver's error", name)
		}
	}
	// The secrets are there: the container has its.
	if _, said, _ := s.holdfast("exec", openMark, "--", "sh", "-c", `echo "$P $S_p"; cat /run/s/p`); strings.Count(said, secretOf(markOfPod)) != 3 {
		t.Errorf("the container has %q", said)
	}
	s.mustRun("delete", "pod/"+openMark, "pod/"+openMark+"-vendor", "pod/stuck")
	s.mustRun("delete", "volumesnapshot/"+openMark)
	s.mustRun("delete", "pvc/"+openMark, "pvc/"+openMark+"-vendor")
	s.until("the volumes are deleted", limitOfTest, func() bool {
		volumes, err := s.client.List(t.Context(), s.kind("persistentvolumes"), api.ListOptions{})
		return err == nil && len(volumes.Items) == 0
	})
	s.endDriver()
	s.stop()
	s.Surfaces = surfaces.Surfaces{"the traces": s.traces.Text()}
	s.files()
	s.Hides(t, marks()...)
	s.start()
}

func writeManifest(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "planted.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
