// Package defects are known defects, which are planted in the product one at a time to
// measure what a simulation finds. No flag of the product plants them: the overlay with
// which a simulation is compiled (package overlay) changes the source, and the environment
// variable DEFECT names the one that is active.
package defects

import (
	"path"
	"slices"

	"github.com/holdfast-csi/holdfast/simulation/lab/overlay"
)

// Defect is a known defect.
type Defect struct {
	// Name is the value of the environment variable.
	Name string
	// What describes it, with where it is from.
	What    string
	Changes []overlay.Change
}

// All are the defects of all doors.
func All() []Defect { return slices.Concat(Kube(), Nodes(), Host()) }

// planted is a change of one text.
func planted(name, file, what, old, changed string) Defect {
	return Defect{Name: name, What: what, Changes: []overlay.Change{{File: file, Old: old, New: changed}}}
}

// Changes returns the changes that make every defect of the list available, and none active.
// Each changed package gets a function that reports which one is.
func Changes(list []Defect) (changes []overlay.Change) {
	packages := map[string]bool{}
	for _, d := range list {
		for _, change := range d.Changes {
			changes = append(changes, change)
			directory := path.Dir(change.File)
			if packages[directory] {
				continue
			}
			packages[directory] = true
			changes = append(changes, overlay.Change{
				File: directory + "/planted_defect.go",
				New:  "package " + path.Base(directory) + "\n\nimport \"os\"\n\nfunc defect(name string) bool { return os.Getenv(\"DEFECT\") == name }\n",
			})
		}
	}
	return changes
}
