package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A driver with its own user can make its socket, and cannot change other files of
// root.
func TestDrivers_withAUserOfTheirOwnCanServe(t *testing.T) {
	m := newMachine(t)
	m.open()
	m.unit("other.yaml", "name: other.example\nuser: \"54321:54322\"\ncommand: [sh, -c, 'cd $(ROOT)/plugins/other.example && touch made; touch ../probe; exec sleep 1000']\nrestart: {first: 1h, longest: 1h}\nstopGrace: 1s\n")
	m.start()
	m.until("the driver makes a file where its socket belongs", limitOfTest/6, func() bool {
		_, err := os.Stat(filepath.Join(m.root, "plugins", "other.example", "made"))
		return err == nil
	})
	if _, err := os.Stat(filepath.Join(m.root, "plugins", "probe")); err == nil {
		t.Error("it can write next to its directory")
	}
	if err := os.Remove(filepath.Join(m.root, "drivers.d", "other.yaml")); err != nil {
		t.Fatal(err)
	}
	m.until("the driver has ended", limitOfTest/6, func() bool {
		said, _ := m.ask("get", "drivers", "other.example")
		return strings.Contains(said, "no driver")
	})
}
