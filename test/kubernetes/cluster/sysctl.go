package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// kubeletSysctls are the settings of the whole machine that a kubelet changes
// when it starts (setupKernelTunables in k/k's pkg/kubelet/cm). They belong to no
// namespace.
func kubeletSysctls() []string {
	return []string{
		"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
		"vm/overcommit_memory", "vm/panic_on_oom",
	}
}

// readSysctls keeps the values that are set now.
func readSysctls() (map[string]string, error) {
	values := make(map[string]string)
	for _, name := range kubeletSysctls() {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		values[name] = strings.TrimSpace(string(value))
	}
	return values, nil
}

// restoreSysctls restores the settings that differ.
func restoreSysctls(values map[string]string) error {
	now, err := readSysctls()
	if err != nil {
		return err
	}
	for name, value := range values {
		if now[name] == value {
			continue
		}
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}
