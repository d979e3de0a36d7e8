package inline

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// list is the drivers that a mode allows.
type list struct {
	everything bool
	drivers    map[string]bool
}

// parseList reads names with commas between them. A text that is not the name of a driver
// allows no driver.
func parseList(text string) list {
	l := list{drivers: map[string]bool{}}
	for item := range strings.SplitSeq(text, ",") {
		switch item = strings.TrimSpace(item); item {
		case "*":
			l.everything = true
		case "":
		default:
			l.drivers[item] = true
		}
	}
	return l
}

// check returns an error if a text in an administrator's list cannot be the name of a
// driver.
func (l list) check() error {
	for driver := range l.drivers {
		if len(validation.IsDNS1123Subdomain(driver)) > 0 {
			return fmt.Errorf("%.100q is not the name of a driver; write names with commas between them, or * for all", driver)
		}
	}
	return nil
}

func (l list) allows(driver string) bool { return l.everything || l.drivers[driver] }
