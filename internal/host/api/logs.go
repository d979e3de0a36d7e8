package api

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// logs answers with a container's output; the query is the one of a cluster.
func (s *Server) logs(w http.ResponseWriter, r *http.Request, t target) error {
	request, err := logRequest(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	request.Namespace, request.Pod = t.namespace, t.name
	ctx, cancel := s.long(r)
	defer cancel()
	out := newStream(w, "text/plain")
	if err := s.options.Host.Logs(ctx, request, out); err != nil && !out.started && ctx.Err() == nil {
		return err
	}
	return nil
}

func logRequest(query url.Values, now time.Time) (request LogRequest, err error) {
	request = LogRequest{Container: query.Get("container"), Tail: -1}
	for name, value := range map[string]*bool{
		"follow": &request.Follow, "previous": &request.Previous, "timestamps": &request.Timestamps,
	} {
		if *value, err = boolean(query.Get(name)); err != nil {
			return request, badRequest("%s: %v", name, err)
		}
	}
	if text := query.Get("tailLines"); text != "" {
		if request.Tail, err = strconv.ParseInt(text, 10, 64); err != nil || request.Tail < 0 {
			return request, badRequest("tailLines %q is not a number of lines", text)
		}
	}
	seconds, since := query.Get("sinceSeconds"), query.Get("sinceTime")
	switch {
	case seconds != "" && since != "":
		return request, badRequest("sinceSeconds and sinceTime: only one can be given")
	case seconds != "":
		number, err := strconv.ParseInt(seconds, 10, 32)
		if err != nil || number < 1 {
			return request, badRequest("sinceSeconds %q is not a number of seconds", seconds)
		}
		request.Since = now.Add(-time.Duration(number) * time.Second)
	case since != "":
		if request.Since, err = time.Parse(time.RFC3339Nano, since); err != nil {
			return request, badRequest("sinceTime %q is not a time as 2006-01-02T15:04:05Z", since)
		}
	}
	return request, nil
}
