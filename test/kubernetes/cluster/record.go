package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// record is the intent of a cluster: it is written before anything is created, and Down
// reads it. It names everything outside the supervisor's namespaces.
type record struct {
	// ID distinguishes this cluster's devices and control groups from those of others.
	ID      string  `json:"id"`
	Plan    plan    `json:"plan"`
	Options Options `json:"options"`
	// Supervisor is zero until it has been started; it does nothing before it
	// is recorded.
	Supervisor process `json:"supervisor"`
	// Sysctls are the values that were there before the kubelet set its own.
	Sysctls map[string]string `json:"sysctls"`
}

// link is the machine's end of the veth pair to the cluster's bridge.
func (r record) link() string { return "hf-" + r.ID }

// controlGroup is the cluster's directory in every hierarchy.
func (r record) controlGroup() string { return "holdfast-cluster-" + r.ID }

func readRecord(l layout) (record, error) {
	data, err := os.ReadFile(l.record())
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, fmt.Errorf("cluster: %s: %w", l.record(), err)
	}
	return r, nil
}

// write replaces the record atomically: a reader sees the old or the new one.
func (r record) write(l layout) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	temporary := l.record() + ".new"
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("cluster: write the record: %w", err)
	}
	return os.Rename(temporary, l.record())
}

func (l layout) hasRecord() (bool, error) {
	_, err := os.Stat(l.record())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
