package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/validation"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
)

// maximumNodeID is the limit of the API (k8s.io/api storage/v1, CSINodeDriver) and of
// the CSI specification (1.13, NodeGetInfoResponse).
const maximumNodeID = 256

// csiHandler serves drivers.
type csiHandler struct{ manager *Manager }

func (h csiHandler) register(ctx context.Context, e *entry, info *registration.PluginInfo) (registered, error) {
	if err := validate(info); err != nil {
		return nil, err
	}
	endpoint := info.GetEndpoint()
	if endpoint == "" {
		endpoint = e.socket.Path // the plugin serves both on one socket
	}
	one := &instance{manager: h.manager, entry: e, name: info.GetName(), endpoint: endpoint}
	found, err := one.introduce(ctx)
	if err != nil {
		return nil, err
	}
	one.set(found) //nolint:contextcheck // connections are closed in the time of Run
	if err := h.manager.add(one); err != nil {
		return nil, errors.Join(err, found.driver.Client.Close())
	}
	return one, nil
}

// introduce connects to the driver and reads its name, readiness, node ID and
// capabilities, before any other call.
func (i *instance) introduce(ctx context.Context) (answers, error) {
	lost, trusted := make(chan struct{}, 1), new(atomic.Bool)
	client, err := i.manager.network.Dial(i.endpoint, csiclient.Options{
		Driver: i.name, Logger: i.manager.logger,
		Fallback: func() string {
			if !trusted.Load() {
				return "" // a driver that is still being identified has no successor
			}
			return i.successor()
		},
		Disconnected: func() {
			select {
			case lost <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		return answers{}, err
	}
	found, err := i.manager.ask(ctx, i.name, client)
	if err != nil {
		return found, errors.Join(err, client.Close())
	}
	found.driver.Socket, found.driver.Client = i.entry.socket, client
	found.lost, found.trusted = lost, trusted
	return found, nil
}

// answers has the driver's info, and the connection to it.
type answers struct {
	lost         chan struct{} // has a message when the connection ended
	trusted      *atomic.Bool  // calls that it does not accept may go to another instance
	driver       *Driver
	version      string
	capabilities []string
	warnings     []string
}

func (m *Manager) ask(ctx context.Context, name string, client *csiclient.Client) (answers, error) {
	found := answers{}
	identity, cancel := context.WithTimeout(ctx, m.timing.identity)
	defer cancel()
	plugin, err := client.PluginInfo(identity)
	if err != nil {
		return found, err
	}
	if plugin.GetName() != name {
		return found, fmt.Errorf("the plugin registers as %q, but its driver says that it is %q: %w", name,
			plugin.GetName(), errOther)
	}
	found.version = plugin.GetVendorVersion()
	// A driver without Probe breaks the specification, and works with every kubelet.
	if err := client.Probe(identity); err != nil && !csiclient.Lacks(err) {
		return found, err
	}
	if found.capabilities, err = capabilitiesOf(identity, client); err != nil {
		return found, err
	}
	node, warnings, err := m.askNode(ctx, name, client)
	found.driver, found.warnings = &Driver{Name: name, Node: node}, warnings
	return found, err
}

// askNode asks who this machine is.
func (m *Manager) askNode(ctx context.Context, name string, client *csiclient.Client) (NodeInfo, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timing.nodeInfo)
	defer cancel()
	answer, err := client.NodeInfo(ctx)
	if err != nil {
		return NodeInfo{}, nil, err
	}
	if err := validateNode(answer); err != nil {
		return NodeInfo{}, nil, fmt.Errorf("driver %s: NodeGetInfo: %w", name, err)
	}
	var warnings []string
	if answer.GetMaxVolumesPerNode() < 0 {
		warnings = append(warnings, fmt.Sprintf("NodeGetInfo answered with %d volumes at most, which is not a valid limit",
			answer.GetMaxVolumesPerNode()))
	}
	return NodeInfo{
		ID: answer.GetNodeId(), Topology: maps.Clone(answer.GetAccessibleTopology().GetSegments()),
		MaxVolumes: max(0, answer.GetMaxVolumesPerNode()),
	}, warnings, nil
}

// validateNode refuses values that a CSINode object or the labels of a node cannot have
// (k/k pkg/apis/storage/validation).
func validateNode(answer *csi.NodeGetInfoResponse) error {
	switch id := answer.GetNodeId(); {
	case id == "":
		return errors.New("answered without a node_id")
	case len(id) > maximumNodeID:
		return fmt.Errorf("the node_id has %d bytes, more than %d", len(id), maximumNodeID)
	}
	segments := answer.GetAccessibleTopology().GetSegments()
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("the topology key %.300q: %s", key, strings.Join(problems, "; "))
		}
		if problems := validation.IsValidLabelValue(segments[key]); len(problems) > 0 {
			return fmt.Errorf("the topology value %s=%.300q: %s", key, segments[key], strings.Join(problems, "; "))
		}
	}
	return nil
}
