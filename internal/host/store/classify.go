package store

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/holdfast-csi/holdfast/internal/host/store/pages"
)

// outline has the fields that identify a record.
type outline struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	// Of a VolumeUse and of a Provisioning.
	Name, Driver, Handle, ClaimUID, VolumeName string
}

func (o outline) version() uint64 {
	version, _ := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64) // 0 without one
	return version
}

// bucket is where the record belongs, which its own page does not say; "" for
// something else.
func (o outline) bucket(key string) string {
	for _, kind := range Kinds() {
		if kind.Kind == o.Kind && kind.GroupVersion().String() == o.APIVersion &&
			(key == o.Metadata.Name || key == Key(o.Metadata.Namespace, o.Metadata.Name)) {
			return kind.Resource
		}
	}
	switch {
	case o.Name == key && o.Driver != "":
		return useBucket
	case o.ClaimUID == key && o.VolumeName != "":
		return provisioningBucket
	}
	return ""
}

// classify sorts the found records by bucket and key, the best first: those surely of
// the last change, then by the version of an object.
func classify(salvaged *pages.Salvaged) map[string]map[string][]pages.Record {
	found, known := map[string]map[string][]pages.Record{}, buckets()
	for _, record := range salvaged.Records {
		bucket, key := record.Bucket, string(record.Key)
		if !slices.Contains(known, bucket) {
			bucket = outlineOf(record).bucket(key) // its page is lost, or the table's name is damaged
		}
		if bucket == "" || record.Standing != pages.Reached && salvaged.Whole[bucket] {
			continue // of another time: nothing of this bucket is missing
		}
		if found[bucket] == nil {
			found[bucket] = map[string][]pages.Record{}
		}
		found[bucket][key] = append(found[bucket][key], record)
	}
	for _, records := range found {
		for _, candidates := range records {
			if len(candidates) > 1 {
				slices.SortStableFunc(candidates, func(a, b pages.Record) int {
					return cmp.Or(cmp.Compare(a.Standing, b.Standing), cmp.Compare(outlineOf(b).version(), outlineOf(a).version()))
				})
			}
		}
	}
	return found
}

func outlineOf(record pages.Record) (o outline) {
	_ = json.Unmarshal(contentOf(record.Value), &o) // a record that does not decode has no kind
	return o
}

// unknownTables lists the tables with records that no schema has: a name is damaged.
func unknownTables(salvaged *pages.Salvaged) []string {
	var unknown []string
	for _, record := range salvaged.Records {
		if name := record.Bucket; name != "" && !slices.Contains(buckets(), name) && !slices.Contains(unknown, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// lastSums returns the sums of the last transaction, nil if they cannot be read. They
// have a checksum of their own, also if the name of the table meta is damaged.
func lastSums(salvaged *pages.Salvaged) *sums {
	for _, record := range salvaged.Records {
		if record.Standing != pages.Reached || string(record.Key) != sumsKey {
			continue
		}
		if read, err := decodeSums(record.Value); err == nil {
			return read
		}
	}
	return nil
}

// lastVersion is that of the last change, so that versions continue growing.
func lastVersion(salvaged *pages.Salvaged) uint64 {
	last := salvaged.Sequences[metaBucket]
	if recorded := lastSums(salvaged); recorded != nil {
		last = max(last, recorded.Version)
	}
	for _, record := range salvaged.Records {
		last = max(last, outlineOf(record).version())
	}
	return last
}
