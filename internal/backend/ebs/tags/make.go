package tags

import (
	"maps"
)

// Volume returns all tags of a new volume. own are further tags of the driver.
func (r *Rules) Volume(
	name string, own map[string]string, specifications []string, metadata map[string]string,
) (map[string]string, error) {
	tags := r.base(VolumeName, name)
	if r.clusterID != "" {
		tags[kubernetesCluster] = r.clusterID
	}
	for _, key := range ofVolumes() {
		if value := metadata[metadataPrefix+key]; value != "" {
			tags[createdForPrefix+key] = value
		}
	}
	maps.Copy(tags, own)
	return r.complete(tags, r.volume, specifications, ofVolumes(), metadata)
}

// Snapshot returns all tags of a new snapshot.
func (r *Rules) Snapshot(name string, specifications []string, metadata map[string]string) (map[string]string, error) {
	return r.complete(r.base(SnapshotName, name), r.snapshot, specifications, ofSnapshots(), metadata)
}

// Changed returns the tags that a modification of a volume requests.
func (r *Rules) Changed(specifications []string, metadata map[string]string) (map[string]string, error) {
	return r.complete(map[string]string{}, nil, specifications, ofVolumes(), metadata)
}

func (r *Rules) base(nameTag, name string) map[string]string {
	tags := map[string]string{nameTag: name, Managed: "true"}
	if r.clusterID != "" {
		tags[clusterPrefix+r.clusterID] = "owned"
		tags[clusterName] = r.clusterID
		tags[nameKey] = r.clusterID + "-dynamic-" + name
	}
	return tags
}

// complete adds the users' tags; a later one replaces an earlier one.
func (r *Rules) complete(
	tags map[string]string, extra []requested, specifications []string, known variables, metadata map[string]string,
) (map[string]string, error) {
	specified, err := r.parse(specifications, known)
	if err != nil {
		return nil, err
	}
	filled := known.fill(metadata)
	for _, set := range []struct {
		name string
		tags []requested
	}{{"extra tag", extra}, {"tagSpecification", specified}} {
		for _, w := range set.tags {
			if err := r.add(tags, w, set.name, filled); err != nil {
				return nil, err
			}
		}
	}
	return tags, checkAll(tags)
}

func (r *Rules) add(tags map[string]string, w requested, from string, filled map[string]string) error {
	text, err := w.value.execute(filled)
	if err == nil {
		err = checkValue(w.key, text)
	}
	if err != nil {
		return r.excuse(from+" "+w.key, err)
	}
	tags[w.key] = text
	return nil
}
