package local

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/quantity"
)

const (
	parameterProvisioning = "provisioning"
	parameterSectorSize   = "sectorSize"
	attributeSize         = "size"

	thin  = "thin"
	thick = "thick"

	// 4096 suits every disk with direct I/O, files with shared extents on xfs
	// included: their direct I/O needs whole blocks of the filesystem.
	defaultSectorSize = 4096
)

func checkParameters(parameters, mutable map[string]string) error {
	if _, err := provisioningOf(parameters, mutable); err != nil {
		return err
	}
	_, err := sectorSizeOf(parameters)
	return err
}

// provisioningOf reads the parameter; the mutable one wins (CSI spec 1.13,
// CreateVolumeRequest.mutable_parameters).
func provisioningOf(parameters, mutable map[string]string) (string, error) {
	provisioning := thin
	for _, given := range []map[string]string{parameters, mutable} {
		value, ok := given[parameterProvisioning]
		if !ok {
			continue
		}
		if value != thin && value != thick {
			return "", fmt.Errorf("%w: parameter %s is %q; want %s or %s",
				backend.ErrInvalid, parameterProvisioning, value, thin, thick)
		}
		provisioning = value
	}
	return provisioning, nil
}

// sectorSizeOf reads the parameter; 0 means that it is not given.
func sectorSizeOf(parameters map[string]string) (int, error) {
	switch value, ok := parameters[parameterSectorSize]; {
	case !ok:
		return 0, nil
	case value == "512":
		return 512, nil
	case value == "4096":
		return 4096, nil
	default:
		return 0, fmt.Errorf("%w: parameter %s is %q; want 512 or 4096", backend.ErrInvalid, parameterSectorSize, value)
	}
}

// ephemeralSize reads the attributes of an inline volume. They come from the
// author of a pod, who may choose only a size.
func ephemeralSize(attributes map[string]string, maximum int64) (int64, error) {
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		if key != attributeSize {
			return 0, fmt.Errorf("%w: volume attribute %q is not known; known is %s", backend.ErrInvalid, key, attributeSize)
		}
	}
	text, ok := attributes[attributeSize]
	if !ok {
		return min(defaultSize, maximum), nil
	}
	size, err := parseSize(text)
	if err != nil {
		return 0, err
	}
	if size > maximum {
		return 0, fmt.Errorf("%w: volume attribute %s is %s, %d bytes; inline volumes may have %d here",
			backend.ErrOutOfRange, attributeSize, text, size, maximum)
	}
	return roundUp(size, allocationUnit), nil
}

func parseSize(text string) (int64, error) {
	parsed, err := quantity.Parse(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("%w: volume attribute %s is %.32q; want a size such as 64Mi or 2Gi",
			backend.ErrInvalid, attributeSize, text)
	}
	size := parsed.Value()
	if size <= 0 || size > maximumSize || parsed.CmpInt64(maximumSize) > 0 {
		return 0, fmt.Errorf("%w: volume attribute %s is %s; want more than 0 and at most %d bytes",
			backend.ErrOutOfRange, attributeSize, text, int64(maximumSize))
	}
	return size, nil
}

func roundUp(size, unit int64) int64 { return (size + unit - 1) / unit * unit }

// The least a filesystem can be made on: mkfs.xfs(8) needs 300 MiB, mkfs.btrfs(8)
// 109 MiB, and mke2fs(8) leaves the journal out below 8 MiB, without which a crash
// can damage an ext4.
func minimumFor(fsType string) int64 {
	switch fsType {
	case "xfs":
		return 300 * mebibyte
	case "btrfs":
		return 109 * mebibyte
	default:
		return 8 * mebibyte
	}
}

// checkCapabilities refuses a size that one of the requested uses cannot work with.
func checkCapabilities(size int64, capabilities []backend.Capability) error {
	for _, c := range capabilities {
		if c.Block {
			continue
		}
		if least := minimumFor(c.FSType); size < least {
			return fmt.Errorf("%w: %d bytes are too few for a filesystem of type %s, which needs %d; ask for more",
				backend.ErrOutOfRange, size, orDefault(c.FSType), least)
		}
	}
	return nil
}

func orDefault(fsType string) string {
	if fsType == "" {
		return "ext4"
	}
	return fsType
}
