package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodeside"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/nodemeta"
)

const backendEBS = "ebs"

// openEBS opens the halves that the mode needs. A node makes no client of EC2,
// so it needs neither credentials nor network access to it.
func openEBS(ctx context.Context, c driverConfig) (openBackend, error) {
	if err := c.ebs.check(); err != nil {
		return openBackend{}, err
	}
	c.ebs.tags.Logger = c.logger
	rules, err := tags.New(c.ebs.tags)
	if err != nil {
		return openBackend{}, &UsageError{Err: err}
	}
	opened := openBackend{controller: ebs.Offline(), close: func() error { return nil }}
	if c.mode.Controls() {
		client, err := cloud.New(ctx, cloud.Options{
			Endpoint: c.ebs.endpoint, Region: c.ebs.region, FindRegion: c.ebs.regionOfNode(c), UserAgent: "holdfast/" + c.version,
			UserAgentExtra: c.ebs.userAgent, LogRequests: c.ebs.sdkLog,
			FirstPoll: c.ebs.firstPoll, Lag: c.ebs.lag, Logger: c.logger, Registerer: c.registry,
		})
		if err != nil {
			return openBackend{}, fmt.Errorf("EC2: %w", err)
		}
		controller, err := c.ebs.controller(c, client, rules)
		if err != nil {
			return openBackend{}, errors.Join(err, client.Close())
		}
		opened.controller = controller
		opened.close = func() error {
			controller.Close()
			return client.Close()
		}
	}
	if !c.mode.Serves() {
		return opened, nil
	}
	half := c.ebs.node(c)
	if onWindows {
		if opened.windows, err = nodeside.NewWindows(half); err != nil {
			return openBackend{}, errors.Join(err, opened.close())
		}
		return opened, nil
	}
	machine, err := nodeside.New(half)
	if err != nil {
		return openBackend{}, errors.Join(err, opened.close())
	}
	// A volume over the format marks would hide them.
	opened.node, opened.forbidden = machine, []string{half.StateDir}
	closeController := opened.close
	opened.close = func() error { return errors.Join(machine.Close(), closeController()) }
	return opened, nil
}

func (e *ebsConfig) controller(c driverConfig, client *cloud.Client, rules *tags.Rules) (*ebs.Controller, error) {
	return ebs.New(ebs.Options{
		Cloud: client, ChangeWindow: e.window, StuckAfter: e.stuck,
		Tags: rules, Reading: c.ebs.reading(), NodeLocal: e.nodeLocal,
		Logger: c.logger, Registerer: c.registry,
	})
}

func (e *ebsConfig) node(c driverConfig) nodeside.Options {
	plugins, name := filepath.Join(c.kubeletDir, "plugins"), cmp.Or(c.name, ebs.DriverName)
	return nodeside.Options{
		SysRoot: e.sysRoot, DevRoot: e.devRoot, Model: e.nvmeModel, Wait: e.deviceWait, LegacyXFS: e.legacyXFS,
		StateDir:    filepath.Join(plugins, name, "devices"),
		MountPrefix: cmp.Or(e.mountPrefix, filepath.Join(plugins, "kubernetes.io/csi", name)+"/"),
		Metadata: metadata.NewChain(metadata.Options{
			Given:   metadata.Instance{ID: c.nodeID, Type: e.instanceType, Zone: e.zone},
			Sources: e.metadataSources(c), Logger: c.logger,
		}),
		Limits: e.limits(), Logger: c.logger, Registerer: c.registry,
	}
}

// The sources of instance metadata.
const (
	sourceIMDS       = "imds"
	sourceKubernetes = "kubernetes"
	// sourceLabeler is sourceKubernetes for Nodes that the controller labels (--label-nodes).
	sourceLabeler = "metadata-labeler"
)

func (e *ebsConfig) metadataSources(c driverConfig) []metadata.Source {
	var sources []metadata.Source
	for _, name := range e.sources {
		switch name {
		case sourceIMDS:
			sources = append(sources, metadata.NewIMDS(""))
		case sourceKubernetes, sourceLabeler:
			object := thisNode{kubeconfig: c.kubeconfig, name: c.nodeName, userAgent: "holdfast/" + c.version}
			sources = append(sources, metadata.Kubernetes{Object: object, Labelled: name == sourceLabeler})
		}
	}
	return sources
}

// regionOfNode asks the Node object for the region, if that is a source of
// metadata and the process knows its node's name.
func (e *ebsConfig) regionOfNode(c driverConfig) func(context.Context) (string, error) {
	if !slices.Contains(e.sources, sourceKubernetes) && !slices.Contains(e.sources, sourceLabeler) || c.nodeName == "" {
		return nil
	}
	return func(ctx context.Context) (string, error) {
		object := thisNode{kubeconfig: c.kubeconfig, name: c.nodeName, userAgent: "holdfast/" + c.version}
		instance, err := metadata.Kubernetes{Object: object}.Instance(ctx)
		return instance.Region, err
	}
}

// thisNode reads this machine's Node object. It connects for each request:
// a process makes one, or one for each count of interfaces.
type thisNode struct{ kubeconfig, name, userAgent string }

func (n thisNode) Node(ctx context.Context) (providerID string, labels map[string]string, err error) {
	clients, err := cluster.Connect(n.kubeconfig, n.userAgent)
	if err != nil {
		return "", nil, err
	}
	return nodemeta.Reader{Nodes: clients.Core.CoreV1().Nodes(), Name: n.name}.Node(ctx)
}
