package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// CheckCapabilities refuses capabilities that no volume of this backend can
// have (ErrInvalid), and names them and the possible ones.
func (g *Guard) CheckCapabilities(capabilities []backend.Capability) error {
	if len(capabilities) == 0 {
		return fmt.Errorf("%w: volume_capabilities is empty; name at least one", backend.ErrInvalid)
	}
	for i, capability := range capabilities {
		if err := g.checkCapability(capability); err != nil {
			return fmt.Errorf("volume_capabilities[%d]: %w", i, err)
		}
	}
	return nil
}

func (g *Guard) checkCapability(c backend.Capability) error {
	if !slices.Contains(g.traits.AccessModes, c.Mode) {
		return fmt.Errorf("%w: access_mode %s is not possible with %s; possible are %s",
			backend.ErrInvalid, c.Mode, g.traits.DriverName, joinModes(g.traits.AccessModes))
	}
	if c.Block {
		if !g.traits.Block {
			return fmt.Errorf("%w: raw block access is not possible with %s", backend.ErrInvalid, g.traits.DriverName)
		}
		return nil
	}
	if windows := g.traits.WindowsFilesystems; c.FSType != "" && !slices.Contains(g.traits.Filesystems, c.FSType) &&
		!slices.Contains(windows, strings.ToLower(c.FSType)) {
		return fmt.Errorf("%w: fs_type %q is not known; known are %s",
			backend.ErrInvalid, c.FSType, strings.Join(slices.Concat(g.traits.Filesystems, windows), ", "))
	}
	// The node engine reads the flags again: a PersistentVolume can be written
	// by hand. Here a class is refused before a volume exists that no node mounts.
	_, err := mount.ParseFlags(c.MountFlags)
	return err
}

func joinModes(modes []backend.AccessMode) string {
	names := make([]string, len(modes))
	for i, mode := range modes {
		names[i] = mode.String()
	}
	return strings.Join(names, ", ")
}

// checkParameters refuses unknown keys by name, then lets the backend look at
// the values.
func (g *Guard) checkParameters(parameters, mutable map[string]string) error {
	// A StorageClass may set a mutable parameter for the start of the volume's life.
	known := slices.Concat(g.traits.Parameters, g.traits.MutableParameters)
	if err := checkKeys("parameters", parameters, known); err != nil {
		return err
	}
	if err := checkKeys("mutable_parameters", mutable, g.traits.MutableParameters); err != nil {
		return err
	}
	return g.controller.CheckParameters(parameters, mutable)
}

// Validate returns an error that names the capability or parameter of belief that
// the volume lacks. A nil map is not compared.
func (g *Guard) Validate(volume backend.Volume, belief backend.VolumeSpec) (err error) {
	if err := g.CheckCapabilities(belief.Capabilities); err != nil {
		return err
	}
	if belief.Parameters, belief.MutableParameters, err = g.normalize(belief.Parameters, belief.MutableParameters); err != nil {
		return err
	}
	if validator, ok := g.controller.(backend.Validator); ok {
		return validator.Validate(volume, belief)
	}
	for _, claim := range []struct {
		field         string
		given, actual map[string]string
	}{
		{"parameters", belief.Parameters, volume.Parameters},
		{"mutable_parameters", belief.MutableParameters, volume.MutableParameters},
	} {
		for key, value := range claim.given {
			if claim.actual[key] != value {
				return fmt.Errorf("%w: %s: the volume was not created with %s=%q", backend.ErrInvalid, claim.field, key, value)
			}
		}
	}
	return nil
}

// normalize changes every parameter's name to its one spelling.
func (g *Guard) normalize(parameters, mutable map[string]string) (map[string]string, map[string]string, error) {
	normalizer, ok := g.controller.(backend.ParameterNormalizer)
	if !ok {
		return parameters, mutable, nil
	}
	return normalizer.NormalizeParameters(parameters, mutable)
}

func (g *Guard) normalized(request CreateRequest) (_ CreateRequest, err error) {
	request.Parameters, request.MutableParameters, err = g.normalize(request.Parameters, request.MutableParameters)
	return request, err
}

func checkKeys(field string, given map[string]string, known []string) error {
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !isKnown(key, known) {
			unknown = append(unknown, fmt.Sprintf("%q", key))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: unknown %s; known are %s", backend.ErrInvalid, field,
		strings.Join(unknown, ", "), orNone(slices.Compact(slices.Sorted(slices.Values(known)))))
}

// isKnown finds a key among names, of which one that ends in "*" is a prefix.
func isKnown(key string, known []string) bool {
	return slices.ContainsFunc(known, func(name string) bool {
		prefix, isPrefix := strings.CutSuffix(name, "*")
		return name == key || (isPrefix && len(key) > len(prefix) && strings.HasPrefix(key, prefix))
	})
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
