package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// checkSame refuses to create an object that exists and differs in what is given.
// Labels and annotations that are not given may be there.
func (m *merger) checkSame(differences []difference) error {
	var problems []error
	differs := func(path, has, given string) {
		problems = append(problems, refuse(api.ErrConflict, fmt.Errorf("%s exists, and its %s is %s, not %s", m.given.Name(),
			path, has, given)))
	}
	for _, d := range differences {
		if store.IsSealed(m.given.Kind) || shown(d.before) == "" || shown(d.after) == "" {
			problems = append(problems, refuse(api.ErrConflict, fmt.Errorf("%s exists, and its %s differs", m.given.Name(), d.path)))
			continue
		}
		differs(d.path, shown(d.before), shown(d.after))
	}
	for _, values := range []struct {
		path          string
		stored, given map[string]string
	}{
		{"metadata.labels", m.stored.GetLabels(), m.given.GetLabels()},
		{"metadata.annotations", m.stored.GetAnnotations(), m.given.GetAnnotations()},
	} {
		for _, key := range slices.Sorted(maps.Keys(values.given)) {
			has, ok := values.stored[key]
			if ok && has == values.given[key] {
				continue
			}
			if has = strconv.Quote(has); !ok {
				has = "absent"
			}
			differs(values.path+"["+key+"]", has, strconv.Quote(values.given[key]))
		}
	}
	if len(problems) == 0 || m.given.Kind.Kind != "PersistentVolumeClaim" || !onlySize(differences) {
		return errors.Join(problems...)
	}
	return fmt.Errorf("%w: change it with 'holdfast resize pvc/%s SIZE'", errors.Join(problems...), m.given.GetName())
}

// onlySize reports whether a claim's size alone differs.
func onlySize(differences []difference) bool {
	return len(differences) == 1 && strings.HasSuffix(differences[0].pattern, ".storage")
}
