package page

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/status/statustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a page over a machine.
type site struct {
	t testing.TB
	*statustest.Machine
	handler *Handler
	server  *httptest.Server
}

func open(t testing.TB, options Options) *site {
	t.Helper()
	s := &site{t: t, Machine: statustest.New(t)}
	options.Source, options.Logger = s.Source, slog.New(slog.DiscardHandler)
	var err error
	if s.handler, err = New(options); err != nil {
		t.Fatal(err)
	}
	s.server = httptest.NewServer(s.handler)
	t.Cleanup(func() {
		s.handler.Close()
		s.server.Close()
	})
	return s
}

// reply is an answer whose body was read.
type reply struct {
	StatusCode int
	Status     string
	Header     http.Header
	cookies    []*http.Cookie
}

// ask sends a request with changes, and follows no redirection.
func (s *site) ask(method, path string, change ...func(*http.Request)) (reply, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, one := range change {
		one(request)
	}
	client := *s.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{answer.StatusCode, answer.Status, answer.Header, answer.Cookies()}, string(body)
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// paths are of every view.
func paths() []string {
	return []string{"", "volumes", "pods", "snapshots", "drivers", "pvc/default/data", "pv/pvc-data", "pod/default/web", "driver/" + statustest.Driver}
}

func (s *site) fill() {
	s.Put(s.t, statustest.Bound("data")...)
	s.Put(s.t, statustest.Pod("web", "data"))
	s.Journal.Step(statustest.Step("data", "create", journal.Done, time.Second))
	s.Journal.Step(statustest.Step("data", "stage", journal.Started, time.Second))
}

// The steps of a pod are of several volumes: each names its own. On the screen of a claim,
// they all are of its volume.
func TestHandler_stepsOfAPodNameTheirVolumes(t *testing.T) {
	s := open(t, Options{})
	s.fill()
	step := statustest.Step("data", "publish", journal.Done, time.Second)
	step.Volume = "claim default/data"
	step.About = append(step.About, journal.Ref{Kind: "Pod", Key: "default/web"})
	s.Journal.Step(step)
	const named = `publish<span class="detail"> claim default/data</span>`
	for path, want := range map[string]bool{"pod/default/web": true, "pvc/default/data": false} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			_, body := s.ask(http.MethodGet, Prefix+path)
			if strings.Contains(body, named) == want && strings.Contains(body, ">publish<") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the step is named: %t, want %t\n%s", path, !want, want, body)
			}
		}
	}
}

func TestHandler_servesEveryView(t *testing.T) {
	s := open(t, Options{})
	s.fill()
	inline := regexp.MustCompile(`(?i) style=| on[a-z]+=|<style|<script(?:[^>]*)>[^<]|javascript:|https?://`)
	for _, path := range paths() {
		answer, body := s.ask(http.MethodGet, Prefix+path)
		if answer.StatusCode != http.StatusOK || !strings.Contains(body, "<h1") || !strings.Contains(body, "</html>") {
			t.Errorf("%q: %s\n%.400s", path, answer.Status, body)
		}
		if found := inline.FindString(body); found != "" {
			t.Errorf("%q has %q, which the policy forbids or which leads elsewhere", path, found)
		}
		if got := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none';") || strings.Contains(got, "unsafe") {
			t.Errorf("%q: the policy is %q", path, got)
		}
		if got := answer.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%q: Cache-Control is %q", path, got)
		}
		if head, empty := s.ask(http.MethodHead, Prefix+path); head.StatusCode != http.StatusOK || empty != "" {
			t.Errorf("%q: HEAD is %s %q", path, head.Status, empty)
		}
	}
}

func TestHandler_hasNothingElse(t *testing.T) {
	s := open(t, Options{})
	for _, path := range []string{"nothing", "pvc/data", "pvc/a/b/c", "pod/../drivers", "driver/a/b", "assets/", "assets/none", "live?at=none"} {
		if answer, body := s.ask(http.MethodGet, Prefix+path); answer.StatusCode == http.StatusOK {
			t.Errorf("%q is %s\n%.200s", path, answer.Status, body)
		}
	}
	answer, body := s.ask(http.MethodGet, Prefix+"pvc/default/none")
	if answer.StatusCode != http.StatusNotFound || !strings.Contains(body, "does not exist") {
		t.Errorf("a missing object is %s\n%s", answer.Status, body)
	}
	for _, name := range []string{"status.css", "status.js", "icon.svg"} {
		if answer, body := s.ask(http.MethodGet, Prefix+"assets/"+name); answer.StatusCode != http.StatusOK || body == "" {
			t.Errorf("%s is %s", name, answer.Status)
		}
	}
}

func TestHandler_onlyReads(t *testing.T) {
	s := open(t, Options{})
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "PROPFIND"} {
		for _, path := range append(paths(), "login", "live") {
			if answer, _ := s.ask(method, Prefix+path); answer.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %q is %s", method, path, answer.Status)
			}
		}
	}
}

// A page of another site, whose name leads to this machine, is not answered.
func TestHandler_refusesOtherNames(t *testing.T) {
	s := open(t, Options{Hosts: LoopbackHosts()})
	for name, permitted := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:80": true, "localhost:8780": true, "LOCALHOST": true, "[::1]:80": true, "[::1]": true, "localhost.": true,
		"evil.example": false, "evil.example:80": false, "127.0.0.1.evil.example": false, "localhost.evil.example:80": false, "10.0.0.1": false,
	} {
		for _, path := range []string{"", "live?at=", "assets/status.css"} {
			if path == "live?at=" && permitted {
				continue // does not end
			}
			answer, _ := s.ask(http.MethodGet, Prefix+path, host(name))
			if refused := answer.StatusCode == http.StatusForbidden; refused == permitted {
				t.Errorf("%s %q is %s", name, path, answer.Status)
			}
		}
	}
}

const token = "0123456789abcdef-token"

func TestToken_isRequired(t *testing.T) {
	s := open(t, Options{Token: token})
	s.handler.access.delay = 0
	s.fill()
	for _, path := range append(paths(), "live?at=") {
		for name, change := range map[string]func(*http.Request){
			"nothing": func(*http.Request) {}, "another": header("Authorization", "Bearer wrong"), "a basic one": header("Authorization", "Basic "+token),
			"a cookie of another": header("Cookie", cookieName+"=99999999999.AAAA"), "an empty cookie": header("Cookie", cookieName+"="),
			"no seconds": header("Cookie", cookieName+"=x."+s.handler.access.signature("x")),
		} {
			if answer, body := s.ask(http.MethodGet, Prefix+path, change); answer.StatusCode != http.StatusUnauthorized || strings.Contains(body, "data") {
				t.Errorf("%q with %s: %s\n%.200s", path, name, answer.Status, body)
			}
		}
	}
	if answer, _ := s.ask(http.MethodGet, Prefix, header("Authorization", "Bearer "+token)); answer.StatusCode != http.StatusOK {
		t.Errorf("with the token: %s", answer.Status)
	}
	answer, body := s.ask(http.MethodGet, Prefix, header("Accept", "text/html"))
	if answer.StatusCode != http.StatusUnauthorized || !strings.Contains(body, `type="password"`) || !strings.Contains(answer.Header.Get("Content-Security-Policy"), "form-action 'self'") {
		t.Errorf("a browser gets %s\n%s", answer.Status, body)
	}
}

// login sends the form.
func (s *site) login(given string) (reply, string) {
	form := url.Values{"token": {given}}.Encode()
	return s.ask(http.MethodPost, loginPath, func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(form)), int64(len(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
}

func TestToken_beginsASession(t *testing.T) {
	s := open(t, Options{Token: token})
	s.handler.access.delay = 0
	now := time.Now()
	s.handler.access.now = func() time.Time { return now }
	for _, wrong := range []string{"", "wrong", token + "x", token[:10]} {
		if answer, _ := s.login(wrong); answer.StatusCode != http.StatusForbidden || len(answer.cookies) != 0 {
			t.Errorf("%q: %s, %v", wrong, answer.Status, answer.cookies)
		}
	}
	answer, _ := s.login(token)
	cookies := answer.cookies
	if answer.StatusCode != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("the token: %s, %v", answer.Status, cookies)
	}
	cookie := cookies[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || strings.Contains(cookie.Value, token) || cookie.Path != Prefix {
		t.Errorf("the cookie is %v", cookie)
	}
	session := header("Cookie", cookie.Name+"="+cookie.Value)
	if answer, _ := s.ask(http.MethodGet, Prefix, session); answer.StatusCode != http.StatusOK {
		t.Errorf("in the session: %s", answer.Status)
	}
	now = now.Add(sessionLimit + time.Second)
	if answer, _ := s.ask(http.MethodGet, Prefix, session); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the session: %s", answer.Status)
	}
}

func TestNew_refusesAShortToken(t *testing.T) {
	if _, err := newAccess("short", false); err == nil {
		t.Error("a token of five bytes is accepted")
	}
}

// What drivers and users write is text, wherever it is shown.
func TestHandler_showsHostileTextAsText(t *testing.T) {
	s := open(t, Options{})
	const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>`
	s.Put(t, statustest.Bound("data")...)
	s.Journal.Record(journal.Notice{About: journal.Ref{Kind: "PersistentVolumeClaim", Key: "default/data"}, Warning: true, Reason: hostile, Message: hostile})
	step := statustest.Step("data", hostile, journal.Failed, time.Second)
	step.Error, step.Detail, step.Code, step.Volume = hostile, hostile, hostile, hostile
	s.Journal.Step(step)
	step.Status = journal.Started
	s.Journal.Step(step)
	for _, path := range append(paths(), "driver/"+url.PathEscape(hostile), "pvc/default/"+url.PathEscape("<b>")) {
		if _, body := s.ask(http.MethodGet, Prefix+path); strings.Contains(body, "<script>alert") || strings.Contains(body, "<img") || strings.Contains(body, "<b>") {
			t.Errorf("%q shows hostile text as HTML\n%s", path, body)
		}
	}
}

// No view has a Secret, nor what else may contain one.
func TestHandler_showsNoSecret(t *testing.T) {
	s := open(t, Options{})
	const marker = "planted-marker"
	objects := statustest.Bound("data")
	for _, object := range objects {
		object.SetAnnotations(map[string]string{"note": marker, corev1.LastAppliedConfigAnnotation: marker})
		if pv, ok := object.(*corev1.PersistentVolume); ok {
			pv.Spec.CSI.VolumeAttributes["password"] = marker
		}
	}
	pod := statustest.Pod("web", "data")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: marker}}
	pod.Spec.Containers[0].Args = []string{marker}
	s.Put(t, append(objects, pod, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "credentials", Annotations: map[string]string{"note": marker}},
		Data:       map[string][]byte{"password": []byte(marker)},
	})...)
	for _, path := range append(paths(), "secret/default/credentials", "secrets") {
		if _, body := s.ask(http.MethodGet, Prefix+path); strings.Contains(body, marker) {
			t.Errorf("%q shows the marker\n%s", path, body)
		}
	}
}

// follow reads a page's stream. The channel has the data of each event.
func (s *site) follow(path, digest string) <-chan string {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.server.URL+Prefix+"live?"+url.Values{"at": {path}, "digest": {digest}}.Encode(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := s.server.Client().Do(request) //nolint:bodyclose // the goroutine below closes it
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("the stream is %s", answer.Status)
	}
	events := make(chan string, 100)
	go func() {
		defer close(events)
		defer func() { _ = answer.Body.Close() }()
		lines := bufio.NewReader(answer.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				events <- data
			}
		}
	}()
	return events
}

// until returns the first event with a text.
func (s *site) until(events <-chan string, text string) string {
	s.t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case data, ok := <-events:
			if !ok {
				s.t.Fatalf("the stream ended without %q", text)
			}
			if strings.Contains(data, text) {
				return data
			}
		case <-limit:
			s.t.Fatalf("no event has %q", text)
		}
	}
}

func digestOf(t testing.TB, body string) string {
	t.Helper()
	found := regexp.MustCompile(`data-digest="([a-z0-9]+)"`).FindStringSubmatch(body)
	if found == nil {
		t.Fatal("the page has no digest")
	}
	return found[1]
}

// A step that begins is on the pages that are open, without the rest of them.
func TestStream_sendsWhatChanges(t *testing.T) {
	s := open(t, Options{})
	s.Put(t, statustest.Bound("data")...)
	s.Put(t, statustest.Bound("other")...)
	_, body := s.ask(http.MethodGet, Prefix+"volumes")
	events := s.follow("volumes", digestOf(t, body))
	begin := time.Now()
	s.Journal.Step(statustest.Step("data", "expand", journal.Started, 0))
	data := s.until(events, "expand")
	t.Logf("a step is on the page %v after it began", time.Since(begin))
	if !strings.Contains(data, `"op":"replace","id":"pvc/default/data"`) || strings.Contains(data, "pvc/default/other") {
		t.Errorf("the event is %s", data)
	}
	s.Put(t, statustest.Claim("new"))
	if data := s.until(events, "pvc/default/new"); !strings.Contains(data, `"op":"insert"`) || !strings.Contains(data, `"after":"pvc/default/data"`) {
		t.Errorf("the event is %s", data)
	}
}

// A browser whose page is older than the stream gets all of it.
func TestStream_replacesAnOldPage(t *testing.T) {
	s := open(t, Options{})
	s.Put(t, statustest.Bound("data")...)
	_, body := s.ask(http.MethodGet, Prefix+"volumes")
	s.Put(t, statustest.Claim("new"))
	if data := s.until(s.follow("volumes", digestOf(t, body)), "pvc/default/new"); !strings.Contains(data, `"id":"main"`) && !strings.Contains(data, `"op":"insert"`) {
		t.Errorf("the event is %.300s", data)
	}
	if data := s.until(s.follow("volumes", "old"), "pvc/default/new"); !strings.Contains(data, `"op":"content","id":"main"`) {
		t.Errorf("the event is %.300s", data)
	}
}

func TestStream_endsWithThePage(t *testing.T) {
	s := open(t, Options{})
	events := s.follow("", "")
	s.until(events, "Overview")
	s.handler.Close()
	for range events { // until it is closed
	}
}

func TestStream_isBounded(t *testing.T) {
	s := open(t, Options{})
	for range mostStreams {
		s.handler.streams <- struct{}{}
	}
	if answer, _ := s.ask(http.MethodGet, Prefix+"live?at="); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one stream too many is %s", answer.Status)
	}
}

// 1,000 volumes are a page that a browser draws at once: its size is what the time to
// the first paint depends on.
func TestHandler_aThousandVolumesAreSmall(t *testing.T) {
	s := open(t, Options{})
	s.thousand()
	begin := time.Now()
	_, body := s.ask(http.MethodGet, Prefix+"volumes")
	t.Logf("the first page of 1,000 volumes has %d bytes after %v", len(body), time.Since(begin))
	begin = time.Now()
	s.ask(http.MethodGet, Prefix+"volumes")
	t.Logf("the second one comes after %v", time.Since(begin))
	if rows := strings.Count(body, "<tr id="); rows != 1001 { // one says that no other volume exists
		t.Errorf("%d rows", rows)
	}
	if elements := strings.Count(body, "<") / 2; elements > 15_000 || len(body) > 700_000 {
		t.Errorf("%d elements in %d bytes", elements, len(body))
	}
}

func (s *site) thousand() {
	var objects []store.Object
	for i := range 1000 {
		objects = append(objects, statustest.Bound(fmt.Sprintf("claim-%03d", i))...)
	}
	s.Put(s.t, objects...)
}

func BenchmarkHandler_aThousandVolumes(b *testing.B) {
	s := open(b, Options{})
	s.thousand()
	var size int
	for b.Loop() {
		recorder := &httptest.ResponseRecorder{Body: new(bytes.Buffer)}
		s.handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, Prefix+"volumes", nil))
		size = recorder.Body.Len()
	}
	b.ReportMetric(float64(size), "bytes")
}

// deadlines is a connection that has only those.
type deadlines struct {
	*httptest.ResponseRecorder
	write time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.write = at
	return nil
}

// A client that does not read holds a page for a limited time.
func TestHandler_boundsTheTimeOfAPage(t *testing.T) {
	s := open(t, Options{})
	answer := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	s.handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Prefix, nil))
	if rest := time.Until(answer.write); answer.Code != http.StatusOK || rest <= 0 || rest > writeLimit {
		t.Errorf("the answer %d may take %s", answer.Code, rest)
	}
}

// A client that does not send the form holds the connection for a limited time.
func TestHandler_boundsTheTimeOfTheForm(t *testing.T) {
	s := open(t, Options{Token: strings.Repeat("x", ShortestToken)})
	s.handler.access.formLimit, s.handler.access.delay = time.Millisecond, 0
	connection, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	_, err = io.WriteString(connection, "POST "+loginPath+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 99\r\n\r\ntoken=")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("half of a form is answered with %s", answer.Status)
	}
}

// Wrong tokens of programs are slowed down as those of the form are, and the right one is not.
func TestToken_guessesOfProgramsAreBounded(t *testing.T) {
	s := open(t, Options{Token: token})
	for range mostGuesses {
		s.handler.access.guesses <- struct{}{}
	}
	for given, want := range map[string]int{"wrong": http.StatusTooManyRequests, token: http.StatusOK} {
		if answer, _ := s.ask(http.MethodGet, Prefix, header("Authorization", "Bearer "+given)); answer.StatusCode != want {
			t.Errorf("%q: %s, want %d", given, answer.Status, want)
		}
	}
}
