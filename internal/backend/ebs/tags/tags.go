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
	// Extra are tags of everything, and ExtraVolume of volumes. Their values are
	// templates. One that names a variable of volumes is for volumes only, and
	// one that names a variable of snapshots for snapshots.
	Extra, ExtraVolume map[string]string
	// WarnOnInvalid leaves a user's tag that cannot be out, with a warning,
	// instead of failing.
	WarnOnInvalid bool
	Logger        *slog.Logger
}

// Rules make tags. They are safe for concurrent use.
type Rules struct {
	clusterID        string
	warn             bool
	log              *slog.Logger
	volume, snapshot []wanted
}

// wanted is a tag that a user requests.
type wanted struct {
	key   string
	value value
}

// variables of templates, and the metadata they come from.
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

// check refuses a tag that names other variables.
func (v variables) check(w wanted) error {
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
	err := errors.Join(r.addExtra(o.Extra), r.addExtraVolume(o.ExtraVolume))
	if o.ClusterID != "" {
		err = errors.Join(err, checkValue(clusterName, o.ClusterID), checkLength(clusterPrefix+o.ClusterID))
	}
	return r, err
}

func checkLength(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("%w: the cluster's ID makes the tag %q, which has more than %d characters", backend.ErrInvalid, key, maxKey)
	}
	return nil
}

func (r *Rules) addExtra(extra map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		w, err := parsePair(key, extra[key])
		forVolumes, forSnapshots := ofVolumes().check(w), ofSnapshots().check(w)
		if err == nil && forVolumes != nil && forSnapshots != nil {
			err = forVolumes
		}
		if err != nil {
			if err = r.excuse("extra tag", err); err != nil {
				return err
			}
			continue
		}
		if forVolumes == nil {
			r.volume = append(r.volume, w)
		}
		if forSnapshots == nil {
			r.snapshot = append(r.snapshot, w)
		}
	}
	return nil
}

func (r *Rules) addExtraVolume(extra map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		w, err := parsePair(key, extra[key])
		if err == nil {
			err = ofVolumes().check(w)
		}
		if err != nil {
			if err = r.excuse("extra volume tag", err); err != nil {
				return err
			}
			continue
		}
		r.volume = append(r.volume, w)
	}
	return nil
}

// excuse turns an error into a warning, if the parameters ask for that.
func (r *Rules) excuse(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	if !r.warn {
		return err
	}
	r.log.Warn("a tag is left out", "error", err)
	return nil
}

func parsePair(key, text string) (wanted, error) {
	if err := checkKey(key); err != nil {
		return wanted{key: key}, err
	}
	v, err := compile(text)
	if err != nil {
		err = fmt.Errorf("the value of %q: %w", key, err)
	}
	return wanted{key: key, value: v}, err
}

// parse reads tags as parameters have them, key=template.
func (r *Rules) parse(specifications []string, known variables) ([]wanted, error) {
	var all []wanted
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

func parseSpecification(text string) (wanted, error) {
	key, template, ok := strings.Cut(text, "=")
	if !ok {
		return wanted{}, fmt.Errorf("%w: %.80q is not key=value", backend.ErrInvalid, text)
	}
	return parsePair(key, template)
}

// CheckVolume reports whether tags of volumes can be so, as far as that can be
// seen without knowing whose volume it is.
func (r *Rules) CheckVolume(specifications []string) error {
	_, err := r.parse(specifications, ofVolumes())
	return err
}

// CheckSnapshot is CheckVolume for snapshots.
func (r *Rules) CheckSnapshot(specifications []string) error {
	_, err := r.parse(specifications, ofSnapshots())
	return err
}
