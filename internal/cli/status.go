package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/status"
	statuspage "github.com/holdfast-csi/holdfast/internal/status/page"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

const statusHelp = `Serve the status page: what exists, what waits and why, and the steps of each
object. Open the address that it prints in a browser. The page only reads.

It shows the running host with the root directory --root, or with --kubeconfig a
cluster. A host serves the same page itself with 'holdfast host --status-address',
and at the path /status/ of its socket.

The address is a loopback address, unless --token-file names a file with a token
of 16 bytes or more: then every browser has to give the token.`

// statusPage are the flags of an address that has the status page.
type statusPage struct {
	address string
	token   string // file
	tls     telemetry.TLS
}

// bind adds the flags, each with a prefix.
func (s *statusPage) bind(flags *pflag.FlagSet, prefix, address, usage string) {
	flags.StringVar(&s.address, prefix+"address", address, usage)
	flags.StringVar(&s.token, prefix+"token-file", "", "`FILE` with a token that browsers must give; required unless the address is a loopback address")
	flags.StringVar(&s.tls.CertificateFile, prefix+"cert-file", "", "`FILE` with the certificate of the status page, in PEM (default: plain HTTP)")
	flags.StringVar(&s.tls.KeyFile, prefix+"key-file", "", "`FILE` with the key of the certificate")
}

// handler makes the page of a source for this address.
func (s *statusPage) handler(source status.Source, logger *slog.Logger) (*statuspage.Handler, error) {
	host, _, err := net.SplitHostPort(s.address)
	if err != nil {
		return nil, usageErrorf("the status page's address %q: want HOST:PORT, such as 127.0.0.1:8780", s.address)
	}
	if (s.tls.CertificateFile == "") != (s.tls.KeyFile == "") {
		return nil, usageErrorf("a certificate of the status page needs its key, and a key its certificate")
	}
	options := statuspage.Options{Source: source, Logger: logger, Secure: s.tls.CertificateFile != ""}
	if options.Token, err = readToken(s.token); err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		options.Hosts = append(statuspage.LoopbackHosts(), host)
	} else if options.Token == "" {
		return nil, usageErrorf("the status page's address %s is not a loopback address: name a file with a token, or use 127.0.0.1 and a tunnel", s.address)
	}
	return statuspage.New(options)
}

// readToken reads a token without the end of its line.
func readToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file) //nolint:gosec // the operator names it
	if err != nil {
		return "", fmt.Errorf("the token of the status page: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < statuspage.ShortestToken {
		return "", fmt.Errorf("the token of the status page in %s has %d bytes; it needs %d at least", file, len(token), statuspage.ShortestToken)
	}
	return token, nil
}

// serve serves the page until the context ends.
func (s *statusPage) serve(ctx context.Context, handler *statuspage.Handler, logger *slog.Logger, listening func(url string)) error {
	defer handler.Close()
	scheme := "http"
	if s.tls.CertificateFile != "" {
		scheme = "https"
	}
	address := strings.Replace(s.address, "localhost:", "127.0.0.1:", 1) // a resolver could make it any address
	err := telemetry.Server{
		Address: address, Handler: handler, Logger: logger, TLS: s.tls,
		Listening: func(bound net.Addr) { listening(scheme + "://" + bound.String() + statuspage.Prefix) },
	}.Run(ctx)
	if err != nil {
		return fmt.Errorf("the status page at %s: %w", s.address, err)
	}
	return nil
}

// statusCommand are the flags of the command status.
type statusCommand struct {
	target
	page statusPage
}

// newStatusCommand is the command of holdfast, or that of the kubectl plugin.
func newStatusCommand(plugin bool) *cobra.Command {
	c := statusCommand{target: target{plugin: plugin}}
	command := &cobra.Command{
		Use:   "status",
		Short: "Serve the status page of a host or a cluster to a browser",
		Long:  statusHelp,
		Example: `  holdfast status
  holdfast status --kubeconfig ~/.kube/config --address 127.0.0.1:8780`,
		Args: arguments(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error { return c.run(command) },
	}
	flags := command.Flags()
	c.bind(flags)
	c.page.bind(flags, "", "127.0.0.1:0", "`HOST:PORT` to serve the page at; port 0 is a free one")
	return command
}

func (c *statusCommand) run(command *cobra.Command) error {
	logger, err := telemetry.NewLogger(command.ErrOrStderr(), telemetry.FormatAuto, "warn")
	if err != nil {
		return err
	}
	source, done, err := c.source(command)
	if err != nil {
		return err
	}
	defer done()
	handler, err := c.page.handler(source, logger)
	if err != nil {
		return err
	}
	return c.page.serve(command.Context(), handler, logger, func(url string) { command.Println(url) })
}

func (c *statusCommand) source(command *cobra.Command) (source status.Source, done func(), err error) {
	if !c.isCluster() {
		client := c.host.dial()
		if _, err := client.Version(command.Context()); err != nil {
			client.Close()
			return nil, nil, fmt.Errorf("%w (a cluster is shown with --kubeconfig FILE)", err)
		}
		source, err := hostSource(client)
		return source, client.Close, err
	}
	config, _, err := c.load(command)
	if err != nil {
		return nil, nil, err
	}
	source, err = status.NewCluster(config, strings.TrimPrefix(strings.TrimPrefix(config.Host, "https://"), "http://"))
	return source, func() {}, err
}

// hostSource is the source of a host, under the name of this machine.
func hostSource(client *api.Client) (status.Source, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("the name of this machine: %w", err)
	}
	return status.NewHost(client, name)
}

// hostPages are the status pages of a host, which are clients of its API: at its socket,
// and at an address if one is given.
type hostPages struct {
	client  *api.Client
	socket  *statuspage.Handler
	servers []func(context.Context) error
}

func (c *hostConfig) statusPages(client *api.Client, logger *slog.Logger) (*hostPages, error) {
	source, err := hostSource(client)
	if err != nil {
		return nil, err
	}
	pages := &hostPages{client: client}
	// The kernel says who is at the other end of the socket; a tunnel may lead a browser
	// to it.
	options := statuspage.Options{Source: source, Logger: logger, Hosts: append(statuspage.LoopbackHosts(), "host")}
	if pages.socket, err = statuspage.New(options); err != nil || c.status.address == "" {
		return pages, err
	}
	handler, err := c.status.handler(source, logger)
	if err != nil {
		pages.close()
		return nil, err
	}
	pages.servers = append(pages.servers, func(ctx context.Context) error {
		return c.status.serve(ctx, handler, logger, func(url string) { logger.Info("the status page is served", "url", url) })
	})
	return pages, nil
}

func (p *hostPages) close() {
	p.socket.Close()
	p.client.Close()
}
