package cli

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/internal/policy"
	"github.com/holdfast-csi/holdfast/internal/policy/webhook"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

const webhookHelp = `Serve an admission webhook that decides which pods may have a pipe of csi-proxy,
and, with --inline, which CSI volumes a pod may have inline.

A pod may have a pipe when its service account is allowed by --allow, when it is a
HostProcess pod, or when all its containers are privileged and spec.os
is unset. Paths that could be such a pipe, but are not written \\.\pipe\NAME, are
rejected for every pod, and so are PersistentVolumes with one.

Inline volumes: namespaces list the drivers that their pods may use in the
annotations inline.policy.holdfast.dev/enforce, /warn and /audit, names with
commas between them or *; --inline-enforce and so on are for those without.
Profiles of drivers are compared with Pod Security levels, attributes with the
kubelet's keys are rejected, and drivers may demand read-only volumes. The webhook
reads namespaces and CSIDrivers from the API server.

Clusters of Kubernetes 1.30 and later can have the same rules without a server:
see the chart's pipePolicy and inlinePolicy. It ends on SIGTERM.`

func newPolicyCommand(version string) *cobra.Command {
	command := &cobra.Command{
		Use:   "policy",
		Short: "Decide who may reach what on a node",
		Args:  unknownCommand,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newWebhookCommand(version))
	return command
}

// webhookFlags are the flags of the command policy webhook.
type webhookFlags struct {
	version             string
	address             string
	tls                 telemetry.TLS
	allowed             []string
	label               string
	withInline          bool
	kubeconfig          string
	inline              inlineFlags
	logFormat, logLevel string
}

func newWebhookCommand(version string) *cobra.Command {
	f := webhookFlags{version: version}
	command := &cobra.Command{
		Use:   "webhook",
		Short: "Serve the rules of csi-proxy's pipes and of inline volumes as an admission webhook",
		Long:  webhookHelp,
		Args:  arguments(cobra.NoArgs),
		RunE:  func(command *cobra.Command, _ []string) error { return f.run(command) },
	}
	flags := command.Flags()
	flags.StringVar(&f.address, "listen", ":8443", "`[HOST]:PORT` to serve on; reviews are posted to "+webhook.Path+", "+webhook.InlinePath+" and "+webhook.ReadOnlyPath)
	flags.StringVar(&f.tls.CertificateFile, "cert-file", "", "`FILE` with the certificate, PEM; it is read again when it changes")
	flags.StringVar(&f.tls.KeyFile, "key-file", "", "`FILE` with the key of --cert-file")
	flags.StringArrayVar(&f.allowed, "allow", nil, "`NAMESPACE/SERVICEACCOUNT` whose pods may have the pipe; may be repeated")
	flags.StringVar(&f.label, "allow-label", "", "`KEY=VALUE` that pods of --allow must carry as well")
	flags.BoolVar(&f.withInline, "inline", false, "serve the rules of inline volumes, too")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` with the way to the API server, for --inline (default: that of the pod)")
	f.inline.bind(flags, true)
	flags.StringVar(&f.logFormat, "log-format", telemetry.FormatAuto, "auto (text on a terminal), text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return command
}

func (f *webhookFlags) run(command *cobra.Command) error {
	if f.tls.CertificateFile == "" || f.tls.KeyFile == "" {
		return usageErrorf("--cert-file and --key-file are both needed: an API server speaks to no webhook without TLS")
	}
	rule, err := f.rule()
	if err != nil {
		return &UsageError{Err: err}
	}
	logger, err := telemetry.NewLogger(command.ErrOrStderr(), f.logFormat, f.logLevel)
	if err != nil {
		return &UsageError{Err: err}
	}
	rules, err := f.inline.rules(nil)
	if err != nil {
		return &UsageError{Err: err}
	}
	options := webhook.Options{Address: f.address, TLS: f.tls, Rule: rule, Logger: logger, Registry: metrics.NewRegistry(f.version)}
	if f.withInline {
		known, err := watchForPolicy(command.Context(), f.kubeconfig, "holdfast-policy", logger)
		if err != nil {
			return err
		}
		options.Inline = &webhook.Inline{Rules: rules, Cluster: known}
	}
	return webhook.Run(command.Context(), options)
}

func (f *webhookFlags) rule() (*policy.Rule, error) {
	var accounts []policy.Account
	for _, text := range f.allowed {
		account, err := policy.ParseAccount(text)
		if err != nil {
			return nil, usageErrorf("--allow: %w", err)
		}
		accounts = append(accounts, account)
	}
	rule, err := policy.New(accounts, f.label)
	if err != nil {
		return nil, usageErrorf("--allow-label: %w", err)
	}
	return rule, nil
}
