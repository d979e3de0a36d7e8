package telemetry

import (
	"net"
	"net/http"
	"strconv"
	"strings"
)

// withoutRebinding refuses requests to a loopback address by a name that is not a loopback
// one: a page of another site, whose name leads a browser to this machine, must not read
// metrics and profiles. On other addresses any name may lead to this machine.
func withoutRebinding(bound net.Addr, handler http.Handler) http.Handler {
	if tcp, ok := bound.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopbackName(r.Host) {
			http.Error(w, "nothing is served here under the name "+strconv.Quote(r.Host)+": use 127.0.0.1 or localhost", http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// isLoopbackName reports whether the host of a request, with or without a port, is a
// loopback address or localhost. HTTP/1.0 has none.
func isLoopbackName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	ip := net.ParseIP(name)
	return name == "" || ip != nil && ip.IsLoopback() || strings.EqualFold(strings.TrimSuffix(name, "."), "localhost")
}
