package store

import (
	"fmt"
	"os"
	"strings"
)

// BootID is different after each boot of the machine (random(4)).
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
