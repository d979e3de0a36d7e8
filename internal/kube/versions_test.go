package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim/grant"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// TestRun_onEveryVersion: the caches sync and claims get volumes whether or not the
// cluster serves a kind. A claim that names a kind that it does not serve waits, with an
// event that says so.
func TestRun_onEveryVersion(t *testing.T) {
	snapshots := []string{snapshotv1.SchemeGroupVersion.Group, groupv1.SchemeGroupVersion.Group}
	for _, row := range []struct {
		name       string
		minor      int
		unserved   []string
		attributes bool // VolumeAttributesClasses are served
	}{
		{"1.33", 33, nil, false},
		{"1.34", 34, nil, true},
		{"1.35", 35, nil, true},
		{"1.36", 36, nil, true},
		{"1.37", 37, nil, true},
		{"1.37, VolumeAttributesClasses are turned off", 37, []string{"storage.k8s.io/v1/volumeattributesclasses"}, false},
		{"1.37, no CRDs of snapshots", 37, snapshots, true},
		{"1.36, CRDs without group snapshots", 36, snapshots[1:], true},
		{"1.35, CRDs of group snapshots of an older version", 35, []string{groupv1.SchemeGroupVersion.String()}, true},
		{"1.33, no CRDs", 33, append(snapshots, grant.Group), false},
		{"1.36, ReferenceGrants of the older version", 36, []string{grant.Group + "/v1"}, true},
	} {
		for _, node := range []string{"", "node-1"} {
			t.Run(fmt.Sprintf("%s, node %q", row.name, node), func(t *testing.T) {
				t.Parallel()
				driver := csidriver.New(driverName)
				driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
					csi.ControllerServiceCapability_RPC_GET_CAPACITY, csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH)
				driver.Topology = map[string]string{"node": "node-1"}
				if node != "" {
					driver.Plugin = append(driver.Plugin, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
					driver.Creation.Answer = func(request *csi.CreateVolumeRequest, volume *csi.Volume) {
						volume.AccessibleTopology = request.GetAccessibilityRequirements().GetPreferred()
					}
				}
				plain, attributed := newClaim("plain"), newClaim("attributed")
				name := "gold"
				attributed.Spec.VolumeAttributesClassName = &name
				for _, pvc := range []metav1.Object{plain, attributed} {
					pvc.GetAnnotations()["volume.kubernetes.io/selected-node"] = node
				}
				class := &storagev1.VolumeAttributesClass{
					ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driverName, Parameters: map[string]string{"tier": "gold"},
				}
				c := apiserver.New(t, driver, newClass(), plain, attributed, class)
				c.SetVersion(row.minor)
				for _, name := range row.unserved {
					c.Unserve(name, true)
				}
				p := start(t, options(c, func(o *Options) {
					o.Node, o.Tuning.CrossNamespace, o.Tuning.ImmediateOnNodes = node, true, true
				}))
				p.ready()
				eventually(t, func() error { _, err := volumeOf(c, "plain"); return err })
				if row.attributes {
					eventually(t, func() error { _, err := volumeOf(c, "attributed"); return err })
					return
				}
				eventually(t, func() error {
					if !slices.ContainsFunc(eventsOf(t, c), func(message string) bool {
						return strings.Contains(message, "the cluster does not serve VolumeAttributesClasses in storage.k8s.io/v1")
					}) {
						return fmt.Errorf("events %q", eventsOf(t, c))
					}
					return nil
				})
			})
		}
	}
}

// eventsOf are the messages of the events that the process wrote.
func eventsOf(t *testing.T, c *apiserver.Cluster) (messages []string) {
	t.Helper()
	events, err := c.Core.CoreV1().Events(metav1.NamespaceAll).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		messages = append(messages, event.Message)
	}
	return messages
}
