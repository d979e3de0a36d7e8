package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
)

// endpoint is a listener and the function that serves it.
type endpoint struct {
	name     string
	listener net.Listener
	serve    func(context.Context, net.Listener) error
}

// endpoints opens every listener, or none.
func (s *settings) endpoints(ctx context.Context, server *ec2emu.Server, log *slog.Logger) ([]endpoint, error) {
	var open []endpoint
	add := func(name, address string, serve func(context.Context, net.Listener) error) error {
		if address == "" {
			return nil
		}
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if to, ok := listener.Addr().(*net.TCPAddr); ok && !to.IP.IsLoopback() {
			log.Warn("listening beyond this machine without access control: every client can change all volumes",
				"what", name, "address", to)
		}
		open = append(open, endpoint{name: name, listener: listener, serve: serve})
		return nil
	}
	err := errors.Join(
		add("EC2", s.address, server.Serve),
		add("control", s.control, server.ServeControl),
		s.metadataEndpoints(server, add),
	)
	if err != nil {
		for _, d := range open {
			_ = d.listener.Close()
		}
		return nil, err
	}
	return open, nil
}

// metadataEndpoints adds one port per instance, or one port for all if the network of
// the request identifies the instance.
func (s *settings) metadataEndpoints(
	server *ec2emu.Server, add func(string, string, func(context.Context, net.Listener) error) error,
) error {
	if s.metadata == "" {
		return nil
	}
	serving := func(handler http.Handler) func(context.Context, net.Listener) error {
		return func(ctx context.Context, listener net.Listener) error {
			return server.ServeMetadata(ctx, listener, handler)
		}
	}
	var networks []netip.Prefix
	var ids []string
	for _, one := range s.instances {
		if one.network.IsValid() {
			networks, ids = append(networks, one.network), append(ids, one.id)
		}
	}
	if len(networks) > 0 {
		return add("metadata", s.metadata, serving(server.MetadataFor(ec2emu.InstanceByAddress(networks, ids))))
	}
	host, port, err := net.SplitHostPort(s.metadata)
	if err != nil {
		return fmt.Errorf("metadata address: %w", err)
	}
	first, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("metadata address: port %q is not a number", port)
	}
	for i, one := range s.instances {
		at := 0 // any free port for each
		if first != 0 {
			at = first + i
		}
		if err := add("metadata of "+one.id, net.JoinHostPort(host, strconv.Itoa(at)),
			serving(server.Metadata(one.id))); err != nil {
			return err
		}
	}
	return nil
}

// serveAll answers on every endpoint until ctx ends or one fails.
func serveAll(ctx context.Context, endpoints []endpoint) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, d := range endpoints {
		group.Go(func() error { return d.serve(ctx, d.listener) })
	}
	return group.Wait()
}

// greet prints the addresses and the settings with which clients use them.
func (s *settings) greet(out io.Writer, endpoints []endpoint) {
	_, _ = fmt.Fprintf(out, "EC2 of account %s in %s; an emulator on this machine, without AWS and its costs.\n\n",
		s.account, s.region)
	for _, d := range endpoints {
		_, _ = fmt.Fprintf(out, "  %-32s http://%s\n", d.name, d.listener.Addr())
	}
	_, _ = fmt.Fprintf(out, "\n  Instances:\n")
	for _, one := range s.instances {
		_, _ = fmt.Fprintf(out, "    %s  %s in %s", one.id, one.kind, one.zone)
		if s.root != "" {
			_, _ = fmt.Fprintf(out, "  devices below %s/instances/%s", s.root, one.id)
		}
		_, _ = fmt.Fprintln(out)
	}
	_, _ = fmt.Fprintf(out, `
  For an AWS SDK or the AWS CLI (version 1 reads the region from AWS_DEFAULT_REGION alone):
    export AWS_ENDPOINT_URL_EC2=http://%[1]s AWS_REGION=%[2]s AWS_DEFAULT_REGION=%[2]s AWS_ACCESS_KEY_ID=ec2emu AWS_SECRET_ACCESS_KEY=ec2emu
  An AWS CLI older than 1.29 or 2.13, such as Debian 12's, also needs the address as an option:
    aws --endpoint-url http://%[1]s ec2 describe-volumes
`, endpoints[0].listener.Addr(), s.region)
	for _, d := range endpoints[1:] {
		if d.name == "control" {
			_, _ = fmt.Fprintf(out, "  Counters and knobs:\n    curl http://%[1]s/metrics   curl http://%[1]s/   (all routes)\n", d.listener.Addr())
			continue
		}
		_, _ = fmt.Fprintf(out, "  As the first instance:\n    export AWS_EC2_METADATA_SERVICE_ENDPOINT=http://%s\n\n",
			d.listener.Addr())
		return
	}
}
