package telemetry

import (
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
)

// withoutRebinding refuses requests to a loopback address by a name that is neither a
// loopback one, nor the host of the configured address, nor this machine's: a page of
// another site, whose name leads a browser to this machine, must not read metrics and
// profiles. On other addresses any name may lead to this machine.
func withoutRebinding(configured string, bound net.Addr, handler http.Handler) http.Handler {
	if tcp, ok := bound.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return handler
	}
	own := ownNames(configured)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := nameOf(r.Host); !isLoopbackName(name) && !slices.Contains(own, name) {
			http.Error(w, "nothing is served here under the name "+strconv.Quote(r.Host)+
				": use 127.0.0.1 or localhost, or let a proxy send Host: localhost", http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// ownNames are the host of the configured address and the name of this machine, also
// without its domain: /etc/hosts may lead them to a loopback address (hostname(1)).
func ownNames(configured string) []string {
	names := []string{nameOf(configured)}
	if name, err := os.Hostname(); err == nil {
		name = nameOf(name)
		short, _, _ := strings.Cut(name, ".")
		names = append(names, name, short)
	}
	return names
}

// nameOf is a host with or without a port as its name or address alone, in lower case.
func nameOf(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// isLoopbackName reports whether a name is a loopback address or localhost. A request of
// HTTP/1.0 has none.
func isLoopbackName(name string) bool {
	ip := net.ParseIP(name)
	return name == "" || ip != nil && ip.IsLoopback() || name == "localhost"
}
