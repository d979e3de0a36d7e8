package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
)

// gateway provides SSH, and systemctl for the kubelet, which the suite expects of nodes
// and the test cluster's nodes lack. It listens on the machine only, as the host that
// the suite takes to reach nodes by (KUBE_SSH_BASTION), and plays these nodes itself.
type gateway struct {
	cluster *cluster.Cluster
	config  *ssh.ServerConfig
	// nodes are their names by address.
	nodes   map[string]string
	mu      sync.Mutex
	stopped map[string]bool
}

// sshKey is the name of the file with the key, in the directory of the reports.
const sshKey = "ssh-key"

// openGateway serves until ctx ends, and returns the environment of the suite.
func openGateway(ctx context.Context, c *cluster.Cluster, dir string) ([]string, error) {
	key, err := makeKey(filepath.Join(dir, sshKey))
	if err != nil {
		return nil, err
	}
	g := &gateway{cluster: c, config: serverConfig(key), nodes: make(map[string]string), stopped: make(map[string]bool)}
	for _, node := range c.Nodes {
		address, err := c.Kubectl(ctx, "get", "node", node, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
		if err != nil {
			return nil, err
		}
		g.nodes[strings.TrimSpace(address)] = node
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go g.serve(ctx, listener)
	return []string{
		"KUBE_SSH_BASTION=" + listener.Addr().String(), "KUBE_SSH_KEY_PATH=" + filepath.Join(dir, sshKey), "KUBE_SSH_USER=root",
	}, nil
}

// makeKey makes the key of both sides, for this run alone.
func makeKey(file string) (ssh.Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, err
	}
	return ssh.NewSignerFromKey(private)
}

func serverConfig(key ssh.Signer) *ssh.ServerConfig {
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, offered ssh.PublicKey) (*ssh.Permissions, error) {
			if string(offered.Marshal()) != string(key.PublicKey().Marshal()) {
				return nil, errors.New("another key")
			}
			return nil, nil
		},
	}
	config.AddHostKey(key)
	return config
}

func (g *gateway) serve(ctx context.Context, listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return // it is closed
		}
		go g.connection(ctx, connection, "")
	}
}

// connection serves one SSH connection: to a node, or to the gateway itself,
// through which connections to nodes go.
func (g *gateway) connection(ctx context.Context, raw net.Conn, node string) {
	connection, channels, requests, err := ssh.NewServerConn(raw, g.config)
	if err != nil {
		_ = raw.Close()
		return
	}
	defer func() { _ = connection.Close() }()
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		switch {
		case node == "" && offered.ChannelType() == "direct-tcpip":
			g.forward(ctx, offered)
		case node != "" && offered.ChannelType() == "session":
			g.session(ctx, offered, node)
		default:
			_ = offered.Reject(ssh.UnknownChannelType, "not here")
		}
	}
}

// forward answers for the node that the channel (RFC 4254, 7.2) asks for.
func (g *gateway) forward(ctx context.Context, offered ssh.NewChannel) {
	var to struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(offered.ExtraData(), &to); err != nil || g.nodes[to.Host] == "" {
		_ = offered.Reject(ssh.ConnectionFailed, "no such node")
		return
	}
	channel, requests, err := offered.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	go g.connection(ctx, channelConn{channel}, g.nodes[to.Host])
}

// session runs the command of an "exec" request (RFC 4254, 6.5).
func (g *gateway) session(ctx context.Context, offered ssh.NewChannel, node string) {
	channel, requests, err := offered.Accept()
	if err != nil {
		return
	}
	go func() {
		defer func() { _ = channel.Close() }()
		for request := range requests {
			var exec struct{ Command string }
			if request.Type != "exec" || ssh.Unmarshal(request.Payload, &exec) != nil {
				_ = request.Reply(false, nil)
				continue
			}
			_ = request.Reply(true, nil)
			stdout, stderr, code := g.run(ctx, node, exec.Command)
			_, _ = channel.Write([]byte(stdout))
			_, _ = channel.Stderr().Write([]byte(stderr))
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{code}))
			return
		}
	}()
}

// run runs a command on a node as its shell would, were there systemd.
func (g *gateway) run(ctx context.Context, node, command string) (stdout, stderr string, code uint32) {
	var err error
	switch strings.TrimPrefix(command, "sudo ") {
	case "systemctl stop kubelet":
		err = g.kubelet(ctx, node, true)
	case "systemctl start kubelet":
		err = g.kubelet(ctx, node, false)
	case "systemctl show kubelet --property ActiveState --value":
		stdout = g.state(node)
	default:
		stdout, err = g.cluster.OnNode(ctx, node, "bash", "-c", command)
	}
	if err == nil {
		return stdout, "", 0
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return stdout, err.Error(), uint32(exit.ExitCode())
	}
	return stdout, fmt.Sprintf("%v\n", err), 1
}

func (g *gateway) kubelet(ctx context.Context, node string, stop bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped[node] = stop
	if stop {
		return g.cluster.StopKubelet(ctx, node)
	}
	return g.cluster.StartKubelet(ctx, node)
}

func (g *gateway) state(node string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped[node] {
		return "inactive\n"
	}
	return "active\n"
}

// channelConn makes a connection of a channel.
type channelConn struct{ ssh.Channel }

func (channelConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (channelConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (channelConn) SetDeadline(time.Time) error      { return nil }
func (channelConn) SetReadDeadline(time.Time) error  { return nil }
func (channelConn) SetWriteDeadline(time.Time) error { return nil }
