package tags

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Options are the flags for tags.
type Options struct {
	// ClusterID adds the tags by which a cluster's resources are known.
	ClusterID string
	// Extra are tags of volumes and snapshots, ExtraVolume of volumes. Their values are
	// templates. A template with a variable of volumes is for volumes only, one with a
	// variable of snapshots for snapshots only.
	Extra, ExtraVolume map[string]string
	// WarnOnInvalid omits an invalid tag of a user with a warning, instead of failing.
	WarnOnInvalid bool
	Logger        *slog.Logger
}

// Rules make tags. They are safe for concurrent use.
type Rules struct {
	clusterID        string
	warn             bool
	log              *slog.Logger
	volume, snapshot []requested
}

// requested is a tag that a user requests.
type requested struct {
	key   string
	value value
}

// variables maps the variables of templates to the keys of their metadata.
type variables map[string]string

func ofVolumes() variables {
	return variables{"PVCName": "pvc/name", "PVCNamespace": "pvc/namespace", "PVName": "pv/name"}
}

func ofSnapshots() variables {
	return variables{
		"VolumeSnapshotName":        "volumesnapshot/name",
		"VolumeSnapshotNamespace":   "volumesnapshot/namespace",
		"VolumeSnapshotContentName": "volumesnapshotcontent/name",
	}
}

// fill returns each variable's value; "" if Kubernetes did not set it.
func (v variables) fill(metadata map[string]string) map[string]string {
	filled := make(map[string]string, len(v))
	for name, key := range v {
		filled[name] = metadata[metadataPrefix+key]
	}
	return filled
}

// check rejects a tag that names other variables.
func (v variables) check(w requested) error {
	for _, name := range w.value.variables {
		if _, known := v[name]; !known {
			return fmt.Errorf("%w: the value of %q names .%s; known are .%s", backend.ErrInvalid, w.key, name,
				strings.Join(slices.Sorted(maps.Keys(v)), ", ."))
		}
	}
	return nil
}

// New checks the flags' tags (ErrInvalid).
func New(o Options) (*Rules, error) {
	r := &Rules{clusterID: o.ClusterID, warn: o.WarnOnInvalid, log: o.Logger}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	err := errors.Join(r.addExtra("extra tag", o.Extra, false), r.addExtra("extra volume tag", o.ExtraVolume, true))
	if o.ClusterID != "" {
		err = errors.Join(err, checkValue(clusterName, o.ClusterID), checkLength(clusterPrefix+o.ClusterID))
	}
	return r, err
}

func checkLength(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("%w: the cluster's ID makes the tag %q, which has more than %d characters",
			backend.ErrInvalid, key, maxKey)
	}
	return nil
}

// addExtra adds tags to those of volumes and of snapshots, or to those of volumes only.
func (r *Rules) addExtra(what string, extra map[string]string, volumesOnly bool) error {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		w, err := parsePair(key, extra[key])
		forVolumes, forSnapshots := ofVolumes().check(w), ofSnapshots().check(w)
		if err == nil && forVolumes != nil && (volumesOnly || forSnapshots != nil) {
			err = forVolumes
		}
		if err != nil {
			if err = r.excuse(what, err); err != nil {
				return err
			}
			continue
		}
		if forVolumes == nil {
			r.volume = append(r.volume, w)
		}
		if forSnapshots == nil && !volumesOnly {
			r.snapshot = append(r.snapshot, w)
		}
	}
	return nil
}

// excuse logs an error as a warning if WarnOnInvalid is set; otherwise it returns it.
func (r *Rules) excuse(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	if !r.warn {
		return err
	}
	r.log.Warn("an invalid tag is omitted", "error", err)
	return nil
}

func parsePair(key, text string) (requested, error) {
	if err := checkKey(key); err != nil {
		return requested{key: key}, err
	}
	v, err := compile(text)
	if err != nil {
		err = fmt.Errorf("the value of %q: %w", key, err)
	}
	return requested{key: key, value: v}, err
}

// parse reads the tags of parameters, which have the form key=template.
func (r *Rules) parse(specifications []string, known variables) ([]requested, error) {
	var all []requested
	for _, text := range specifications {
		w, err := parseSpecification(text)
		if err == nil {
			err = known.check(w)
		}
		if err != nil {
			if err = r.excuse("tagSpecification", err); err != nil {
				return nil, err
			}
			continue
		}
		all = append(all, w)
	}
	return all, nil
}

func parseSpecification(text string) (requested, error) {
	key, template, ok := strings.Cut(text, "=")
	if !ok {
		return requested{}, fmt.Errorf("%w: %.80q is not key=value", backend.ErrInvalid, text)
	}
	return parsePair(key, template)
}

// CheckVolume checks the tags of volumes without the metadata of a volume.
func (r *Rules) CheckVolume(specifications []string) error {
	_, err := r.parse(specifications, ofVolumes())
	return err
}

// CheckSnapshot is CheckVolume for snapshots.
func (r *Rules) CheckSnapshot(specifications []string) error {
	_, err := r.parse(specifications, ofSnapshots())
	return err
}
