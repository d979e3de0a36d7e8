package supervise

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// FuzzUnit reads any bytes as the file of a unit. What is accepted can be executed: it has
// a name for a directory, and no byte that ends a text in the kernel. It is the same unit
// after it was written and read again.
func FuzzUnit(f *testing.F) {
	f.Add([]byte("name: hostpath.csi.k8s.io\ncommand: [/bin/p, \"--endpoint=$(CSI_ENDPOINT)\", \"--cost=$$(5)\"]\nenvironment: {DATA: $(ROOT)/data}\nregister: true\nrestart: {longest: 30s}\n"))
	f.Add([]byte("name: a\ncommand: [\"a\\0b\"]\nenvironment: {X: \"\\0\"}\nuser: \"0\\0:0\"\nworkingDirectory: \"/\\0\"\n"))
	f.Add([]byte("name: a\ncommand: [a, $(ROOT]\nstopGrace: 9999999h\n"))
	f.Add([]byte("a: &a [x,x,x,x,x,x,x,x]\ncommand: [*a,*a,*a,*a]\nname: *a\n"))
	f.Add([]byte(strings.Repeat("{a: ", 5000)))
	f.Add([]byte("---\nname: a\n---\ncommand: [b]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var unit *Unit
		var err error
		fuzztest.Cost{Bytes: 64 << 20, PerByte: 16 << 10}.Within(t, len(data), func() { unit, err = Parse(data) })
		if err != nil {
			return
		}
		texts := append([]string{unit.Name, unit.WorkingDirectory, unit.User}, unit.Command...)
		for name, value := range unit.Environment {
			texts = append(texts, name, value)
		}
		for _, text := range texts {
			if strings.ContainsRune(text, 0) {
				t.Errorf("%q is accepted", text)
			}
		}
		if unit.Name == "" || strings.ContainsAny(unit.Name, "/\\") || len(unit.Command) == 0 {
			t.Errorf("%+v is accepted", unit)
		}
		written, err := yaml.Marshal(unit)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parse(written); err != nil || hashOf(again) != hashOf(unit) {
			t.Errorf("%+v was written as %q and read as %+v, %v", unit, written, again, err)
		}
	})
}
