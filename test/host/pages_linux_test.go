package host_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// stream adds the beginning of an answer that does not end.
func (s *shown) stream(client *http.Client, name, address string, header http.Header) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limitOfTest)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header = header
	answer, err := client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	s.Surfaces[name] = fmt.Appendf(nil, "%s %v\n", answer.Status, answer.Header)
	lines, part := bufio.NewReader(answer.Body), make([]byte, 1<<20)
	for quiet := 200 * time.Millisecond; ; {
		ends := time.AfterFunc(quiet, cancel)
		n, err := lines.Read(part)
		ends.Stop()
		s.Surfaces[name] = append(s.Surfaces[name], part[:n]...)
		if err != nil {
			return // nothing follows for now
		}
	}
}

var links = regexp.MustCompile(`(?:href|src)="(/status/[^"#]*)"`)

// pages adds each view of a status page to which links lead, and its stream.
func (s *shown) pages(client *http.Client, name, address string, header http.Header) {
	s.t.Helper()
	todo, seen := []string{"/status/"}, map[string]bool{"/status/": true}
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		code, body := s.get(client, name+" "+path, address+path, header)
		if code != http.StatusOK {
			s.t.Errorf("%s: GET %s: %d %s", name, path, code, body)
		}
		for _, link := range links.FindAllStringSubmatch(body, -1) {
			if !seen[link[1]] {
				seen[link[1]] = true
				todo = append(todo, link[1])
			}
		}
		if !strings.Contains(path, "assets/") {
			at := strings.TrimPrefix(path, "/status/")
			s.stream(client, name+": stream of "+path, address+"/status/live?digest=none&at="+url.QueryEscape(at), header)
		}
	}
	for _, view := range []string{"volumes", "pods", "snapshots", "drivers", "pvc/default/" + openMark + "-vendor", "pod/default/" + openMark, "snapshot/default/" + openMark} {
		if !seen["/status/"+view] {
			s.t.Errorf("%s: no link leads to %s: %v", name, view, seen)
		}
	}
}

// page adds the status page at its own address: its views, and how it refuses tokens.
func (s *shown) page() {
	s.t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	address := "http://" + s.status
	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	s.pages(client, "the page", address, bearer(secretOf(markOfPage)))
	s.get(client, "the page with a wrong token", address+"/status/", bearer(secretOf(markOfGuess)))
	s.get(client, "the page with a token in the address", address+"/status/?token="+url.QueryEscape(secretOf(markOfPage)), http.Header{"Accept": {"text/html"}})
	s.get(client, "the page of a token", address+"/status/"+markOfGuess, bearer(secretOf(markOfPage)))
	for name, token := range map[string]string{"a right": secretOf(markOfPage), "a wrong": secretOf(markOfGuess)} {
		answer, err := client.PostForm(address+"/status/login", url.Values{"token": {token}})
		if err != nil {
			s.t.Fatal(err)
		}
		data, err := httputil.DumpResponse(answer, true)
		if err != nil {
			s.t.Fatal(err)
		}
		_ = answer.Body.Close()
		s.Surfaces["the form with "+name+" token"] = data
	}
}
