package host_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ask runs a command against the machine's host and returns its output.
func (m *machine) ask(arguments ...string) (string, error) {
	output, err := exec.Command(binary, append(arguments, "--root", m.root)...).CombinedOutput()
	return string(output), err
}

// saysAll fails unless the text has all words.
func (m *machine) saysAll(what, text string, words ...string) {
	m.t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			m.t.Errorf("%s does not say %q:\n%s", what, word, text)
		}
	}
}

func (m *machine) unit(file, text string) {
	m.t.Helper()
	directory := filepath.Join(m.root, "drivers.d")
	if err := errors.Join(os.MkdirAll(m.root, 0o755), os.MkdirAll(directory, 0o700)); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, file), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// The commands show why a driver does not start, not only its log files.
func TestDrivers_areListedWithTheirUnits(t *testing.T) {
	m := newMachine(t)
	m.unit("crash.yaml", "name: crash.example\ncommand: [sh, -c, 'echo no such disk; exit 3']\nrestart: {first: 1h, longest: 1h}\n")
	m.unit("typo.yaml", "name: typo.example\ncomand: [true]\n")
	m.start()
	var said string
	m.until("the crash is seen", limitOfTest, func() bool {
		said, _ = m.ask("get", "drivers", "-o", "wide")
		return strings.Contains(said, "Waiting") && strings.Contains(said, "typo.yaml") && strings.Contains(said, "Registered")
	})
	m.saysAll("get drivers", said, "local.holdfast.dev", "Registered", "crash.example", "exit status 3", "Refused", "comand")
	said, err := m.ask("describe", "drivers", "crash.example")
	if err != nil {
		t.Error(err)
	}
	m.saysAll("describe driver", said, "crash.yaml", "exit status 3", "no such disk")
	if said, err = m.ask("get", "drivers", "absent.example"); err == nil || !strings.Contains(said, "drivers.d") {
		t.Errorf("a driver that is not known: %v\n%s", err, said)
	}
	said, _ = m.ask("get", "drivers", "-o", "yaml")
	m.saysAll("the YAML", said, "nodeID:", "capabilities:", "no such disk")
}

// The built-in driver's object is made as an apply makes one.
func TestDrivers_theBuiltInOneHasAnIdentity(t *testing.T) {
	m := newMachine(t)
	m.start()
	var said string
	m.until("the object is there", limitOfTest, func() (there bool) {
		said, _ = m.ask("get", "csidrivers", "-o", "yaml")
		return strings.Contains(said, "local.holdfast.dev")
	})
	m.saysAll("the object", said, "uid: ", "creationTimestamp: ")
	m.stop()
	m.start()
	if again, _ := m.ask("get", "csidrivers", "-o", "yaml"); again != said {
		t.Errorf("a restart changes the object:\n%s\nwas\n%s", again, said)
	}
}
