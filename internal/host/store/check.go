package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Problem is one thing that is wrong in a store.
type Problem struct {
	Where string // such as persistentvolumes "pv-1"
	What  string
	// Lost means that the record cannot be read.
	Lost bool
}

func (p Problem) String() string { return p.Where + ": " + p.What }

// Report describes the contents of a store.
type Report struct {
	Path     string
	Schema   int
	Version  uint64         // of the last change
	Records  map[string]int // by kind
	Problems []Problem
}

// Check reads the store below root, which no process may have open, and changes
// nothing. The error is for a file that cannot be inspected; the report has the faults
// in it.
func Check(root string) (*Report, error) { return CheckWith(root, Options{}) }

// CheckWith is Check with options.
func CheckWith(root string, options Options) (*Report, error) {
	return checkFile(filepath.Join(root, FileName), options.vault(root))
}

func checkFile(path string, vault *vault) (*Report, error) {
	report := &Report{Path: path, Records: map[string]int{}}
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		report.Problems = append(report.Problems, Problem{Where: "the file", What: "it has no bytes", Lost: true})
		return report, nil
	}
	db, err := openFile(path, true)
	if errors.Is(err, ErrDamaged) {
		report.Problems = append(report.Problems, Problem{Where: "the file", What: err.Error(), Lost: true})
		return report, nil // its records cannot be walked safely
	}
	if err != nil {
		return nil, explain(path, err)
	}
	s := &Store{db: db, path: path, vault: vault}
	defer func() { _ = s.Close() }()
	if report.Schema, _, err = s.inspect(); err != nil {
		return nil, err
	}
	if report.Schema == 0 {
		report.Problems = append(report.Problems, Problem{Where: "the file",
			What: "it is empty: no store was ever made in it", Lost: true})
		return report, nil
	}
	s.plain = report.Schema < checksummed
	return report, s.View(func(tx *Tx) error {
		report.Version = tx.Version()
		report.readAll(tx)
		if !s.plain {
			report.Problems = append(report.Problems, compareSums(tx.tx)...)
		}
		report.compare(tx)
		return nil
	})
}

func (r *Report) add(where, format string, arguments ...any) {
	r.Problems = append(r.Problems, Problem{Where: where, What: fmt.Sprintf(format, arguments...)})
}

// readAll decodes every record.
func (r *Report) readAll(tx *Tx) {
	for _, name := range buckets() {
		bucket := tx.tx.Bucket([]byte(name))
		if bucket == nil {
			if r.Schema == Schema && name != configMapBucket { // which a store of this schema gets when it is opened
				r.add(name, "the table is missing")
			}
			continue
		}
		if name == metaBucket {
			continue
		}
		_ = bucket.ForEach(func(key, stored []byte) error {
			r.Records[name]++
			data, err := tx.content(name, string(key), stored)
			if err == nil {
				err = readable(tx, name, string(key), data)
			}
			if err != nil {
				r.Problems = append(r.Problems, Problem{Where: fmt.Sprintf("%s %q", name, key), What: err.Error(), Lost: !errors.Is(err, ErrSealed)})
			}
			return nil
		})
	}
}

// readable decodes one record of any table.
func readable(tx *Tx, bucket, key string, data []byte) error {
	if kind, ok := KindOf(bucket); ok {
		object, err := tx.decodeObject(kind, key, data)
		if err == nil && KeyOf(object) != key {
			err = fmt.Errorf("has the name %q inside", KeyOf(object))
		}
		return err
	}
	var err error
	switch bucket {
	case useBucket:
		_, err = tx.Uses().decode(key, data)
	case provisioningBucket:
		_, err = tx.Provisionings().decode(key, data)
	}
	return err
}

// compare finds references to missing records.
func (r *Report) compare(tx *Tx) {
	if slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Lost }) {
		return // what refers to a lost record is not another problem
	}
	claims, _ := tx.Claims().All()
	for _, pvc := range claims {
		if name := pvc.Spec.VolumeName; name != "" && tx.tx.Bucket([]byte(volumeBucket)).Get([]byte(name)) == nil {
			r.add(fmt.Sprintf("%s %q", claimBucket, KeyOf(pvc)), "its PersistentVolume %q is missing: give it back with 'holdfast apply', from an export or a copy of the store", name)
		}
	}
	volumes, _ := tx.Volumes().All()
	seen := map[string]string{}
	for _, volume := range volumes {
		source := volume.Spec.CSI
		if source == nil {
			r.add(fmt.Sprintf("%s %q", volumeBucket, volume.Name), "it is of no CSI driver")
			continue
		}
		id := source.Driver + "^" + source.VolumeHandle
		if first, twice := seen[id]; twice {
			r.add(fmt.Sprintf("%s %q", volumeBucket, volume.Name), "it is the volume of %q, too", first)
		}
		seen[id] = volume.Name
	}
}
