package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"
)

// The way that the suite takes: a connection through the gateway to the node.
func TestGateway_isTheNodesToTheSuite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if _, err := makeKey(file); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParsePrivateKey(written)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{config: serverConfig(key), nodes: map[string]string{"10.0.0.1": "node-1"}, stopped: map[string]bool{"node-1": true}}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go g.serve(t.Context(), listener)

	config := &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(key.PublicKey()),
	}
	gate, err := ssh.Dial("tcp", listener.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gate.Close() }()
	if _, err := gate.Dial("tcp", "10.0.0.2:22"); err == nil {
		t.Error("a node that there is not is reached")
	}
	raw, err := gate.Dial("tcp", "10.0.0.1:22")
	if err != nil {
		t.Fatal(err)
	}
	connection, channels, requests, err := ssh.NewClientConn(raw, "10.0.0.1:22", config)
	if err != nil {
		t.Fatal(err)
	}
	node := ssh.NewClient(connection, channels, requests)
	session, err := node.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	output, err := session.Output("systemctl show kubelet --property ActiveState --value")
	if err != nil || string(output) != "inactive\n" {
		t.Errorf("the state of a stopped kubelet: %q, %v", output, err)
	}
}

func TestGateway_refusesOtherKeys(t *testing.T) {
	var keys []ssh.Signer
	for _, name := range []string{"a", "b"} {
		key, err := makeKey(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	config := serverConfig(keys[0])
	if _, err := config.PublicKeyCallback(nil, keys[1].PublicKey()); err == nil {
		t.Error("another key is let in")
	}
	if _, err := config.PublicKeyCallback(nil, keys[0].PublicKey()); err != nil {
		t.Error(err)
	}
}
