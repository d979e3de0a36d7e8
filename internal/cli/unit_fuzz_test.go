package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// words reads a command line of a unit file by systemd's rules (systemd.service(5)
// "Command lines", systemd.syntax(7) "Quoting"), independently of what writes it. ok is
// false if systemd would refuse it or read a variable.
func words(line string) (all []string, ok bool) {
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return all, true
		}
		var word strings.Builder
		for quote := byte(0); ; {
			if line == "" {
				if quote != 0 {
					return nil, false
				}
				break
			}
			c := line[0]
			line = line[1:]
			switch {
			case quote == 0 && (c == ' ' || c == '\t'):
			case c == quote && quote != 0:
				quote = 0
				continue
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
				continue
			case c == '\\':
				if line == "" || line[0] != '\\' && line[0] != '"' {
					return nil, false // an escape that is not written here
				}
				word.WriteByte(line[0])
				line = line[1:]
				continue
			case c == '%' || c == '$':
				if line == "" || line[0] != c {
					return nil, false // a specifier or a variable
				}
				word.WriteByte(c)
				line = line[1:]
				continue
			case c == ';' && quote == 0 && word.Len() == 0 && (line == "" || line[0] == ' '):
				return nil, false // separates commands
			default:
				word.WriteByte(c)
				continue
			}
			break
		}
		all = append(all, word.String())
	}
}

// FuzzSystemdUnit writes drop-ins for any names and paths. systemd reads exactly the
// arguments that were given, in the lines that are there for every unit, and no other
// line or section.
func FuzzSystemdUnit(f *testing.F) {
	f.Add("postgresql.service", "data:/srv/data", "", "default", "/usr/local/bin/holdfast", "/var/lib/holdfast")
	f.Add("a.socket", "data:/srv/my data:ro", "hold", "shop", "/opt/hold fast", "/r%i")
	f.Add("a@%i.service", "data:/$HOME/\"x\"", "h$x", "n", "/p;q", "relative")
	f.Add("a.service", "data:/x\nExecStart=/bin/sh", "a\nb", "n\n", "/p\n[Service]", "/r\r")
	f.Add("a.service\r", "data:/\\x41", "", "default", "-/p", "")
	f.Add("a.service", "data:/x\x00", "'", "default", "", "/")
	f.Fuzz(func(t *testing.T, unit, volume, name, namespace, program, root string) {
		c := unitConfig{volumes: []string{volume}, name: name, unit: unit, program: program}
		c.root, c.namespace = root, namespace
		if len(content.IsDNS1123Label(namespace)) > 0 {
			return // the flag refuses it
		}
		var out bytes.Buffer
		command := newSystemdCommand()
		command.SetOut(&out)
		var err error
		fuzztest.Cost{}.Within(t, len(volume)+len(root)+len(program)+len(name), func() { err = c.print(command) })
		if err != nil {
			if out.Len() > 0 {
				t.Errorf("an error (%v) after %q", err, &out)
			}
			return
		}
		checkDropIn(t, out.String(), c, volume)
	})
}

func checkDropIn(t *testing.T, text string, c unitConfig, volume string) {
	t.Helper()
	if strings.ContainsAny(text, "\r\x00") {
		t.Errorf("the unit has a control character: %q", text)
	}
	var directives []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		directive, value, _ := strings.Cut(line, "=")
		directives = append(directives, directive)
		if !strings.HasPrefix(directive, "Exec") {
			continue
		}
		value, privileged := strings.CutPrefix(value, "+")
		got, ok := words(value)
		if !privileged || !ok || len(got) < 3 || got[0] != c.program || got[2] != c.name {
			t.Errorf("systemd reads %q of %q; want the program %q and the hold %q", got, line, c.program, c.name)
		}
		if directive == "ExecStartPre" && got[len(got)-1] != volume {
			t.Errorf("systemd reads the volume %q of %q; want %q", got[len(got)-1], line, volume)
		}
	}
	if len(directives) != 6 || !slices.Equal(directives[:3], []string{"[Unit]", "Wants", "After"}) || !slices.Equal(directives[4:], []string{"ExecStartPre", "ExecStopPost"}) {
		t.Errorf("the unit has %q: %s", directives, text)
	}
}
