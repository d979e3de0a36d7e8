package server

import (
	"strings"
	"testing"
)

func TestParseEndpoint_takesTCPOnTheLoopbackOfWindowsOnly(t *testing.T) {
	for text, want := range map[string]string{
		"tcp://127.0.0.1:9000": "", "tcp://[::1]:9000": "",
		"tcp://0.0.0.0:9000": "this machine only", "tcp://10.0.0.1:9000": "this machine only", "tcp://localhost:9000": "this machine only",
		"tcp://:9000": "this machine only", "tcp://127.0.0.1": "this machine only", "tcp://": "this machine only",
	} {
		endpoint, err := parseEndpoint(text, "windows")
		switch {
		case want == "" && (err != nil || endpoint.String() != text || endpoint.Path != ""):
			t.Errorf("%s: %+v, %v", text, endpoint, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v; want %q", text, err, want)
		}
		if _, err := parseEndpoint(text, "linux"); err == nil {
			t.Errorf("%s is taken on Linux", text)
		}
	}
	endpoint, err := parseEndpoint("unix:///csi/csi.sock", "linux")
	if err != nil || endpoint.String() != "unix:///csi/csi.sock" {
		t.Errorf("%+v, %v", endpoint, err)
	}
}

// The whole driver on a listener that is not a unix socket.
func TestEndpoint_listensOnTCP(t *testing.T) {
	endpoint, err := parseEndpoint("tcp://127.0.0.1:0", "windows")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := endpoint.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if !strings.HasPrefix(listener.Addr().String(), "127.0.0.1:") {
		t.Errorf("it listens on %s", listener.Addr())
	}
}
