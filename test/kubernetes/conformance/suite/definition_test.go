package suite

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	storage "k8s.io/kubernetes/test/e2e/storage/framework"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// definition has the fields of a driver definition file, whose type in k/k's
// test/e2e/storage/external is not exported.
type definition struct {
	StorageClass, SnapshotClass, GroupSnapshotClass struct {
		FromName                        bool
		FromFile, FromExistingClassName string
	}
	VolumeAttributesClass struct{ FromFile, FromExistingClassName string }
	InlineVolumes         []struct {
		Attributes       map[string]string
		Shared, ReadOnly bool
	}
	ClientNodeName string
	NodeSelectors  map[string]string
	Timeouts       map[string]string
	DriverInfo     storage.DriverInfo
}

// check refuses errors that the suite ignores: a field or a capability
// that it does not know, and a timeout that makes it use its defaults for all.
func check(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	data, err = yaml.YAMLToJSONStrict(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	// Which, unlike encoding/json, takes no field whose case is another.
	var d definition
	strict, err := json.UnmarshalStrict(data, &d)
	if err := errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for capability := range d.DriverInfo.Capabilities {
		if !slices.Contains(capabilities(), capability) {
			return fmt.Errorf("%s: the suite knows no capability %q", file, capability)
		}
	}
	for name, value := range d.Timeouts {
		if _, err := time.ParseDuration(value); err != nil {
			return fmt.Errorf("%s: timeout %s: %w", file, name, err)
		}
	}
	return nil
}

func capabilities() []storage.Capability {
	return []storage.Capability{
		storage.CapPersistence, storage.CapBlock, storage.CapFsGroup, storage.CapVolumeMountGroup, storage.CapExec,
		storage.CapSnapshotDataSource, storage.CapSnapshotMetadata, storage.CapVolumeGroupSnapshot,
		storage.CapPVCDataSource, storage.CapMultiPODs, storage.CapRWX, storage.CapControllerExpansion,
		storage.CapNodeExpansion, storage.CapOfflineExpansion, storage.CapOnlineExpansion, storage.CapVolumeLimits,
		storage.CapSingleNodeVolume, storage.CapTopology, storage.CapCapacity, storage.CapFSResizeFromSourceNotSupported,
		storage.CapReadWriteOncePod, storage.CapMultiplePVsSameID, storage.CapReadOnlyMany, storage.CapSELinuxMount,
	}
}
