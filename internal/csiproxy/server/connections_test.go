package server

import (
	"net"
	"testing"

	"google.golang.org/grpc/credentials"
)

// known is a transport that knows the process of every client.
type known struct{ Transport }

func (known) Client(net.Conn) Process { return Process{ID: 4711} }

// gRPC may copy the credentials before it uses them.
func TestIdentity_cloneReportsTheClientToo(t *testing.T) {
	own := identity{known{}}
	for name, i := range map[string]credentials.TransportCredentials{"the credentials": own, "their clone": own.Clone()} {
		if protocol := i.Info().SecurityProtocol; protocol != "named pipe" {
			t.Errorf("%s are for %q", name, protocol)
		}
		_, info, err := i.ServerHandshake(nil)
		if c, ok := info.(client); !ok || c.process.ID != 4711 || err != nil {
			t.Errorf("%s report the client as %#v, %v", name, info, err)
		}
	}
}
