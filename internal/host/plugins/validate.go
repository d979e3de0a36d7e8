package plugins

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// maximumName is how long a driver's name may be (CSI spec 1.13, GetPluginInfoResponse).
const maximumName = 63

// validate refuses what the kubelet would refuse of a driver.
func validate(info *registration.PluginInfo) error {
	if err := validateName(info.GetName()); err != nil {
		return err
	}
	return validateVersions(info.GetName(), info.GetSupportedVersions())
}

func validateName(name string) error {
	if len(name) > maximumName {
		return fmt.Errorf("the driver's name %q has %d bytes, more than %d", name, len(name), maximumName)
	}
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(name)); len(problems) > 0 {
		return fmt.Errorf("the driver's name %q: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// validateVersions wants 1.x as the highest version; those above are ignored.
func validateVersions(name string, versions []string) error {
	if len(versions) == 0 {
		return fmt.Errorf("driver %s names no version of the registration interface", name)
	}
	served := false
	for _, text := range versions {
		major, err := majorVersion(text)
		if err != nil {
			return fmt.Errorf("driver %s: version %q: %w", name, text, err)
		}
		served = served || major == 1
	}
	if !served {
		return fmt.Errorf("driver %s serves the versions %s of the registration interface; this host needs 1.x",
			name, strings.Join(versions, ", "))
	}
	return nil
}

var errVersion = errors.New("not of the form 1.2.3")

func majorVersion(text string) (int, error) {
	parts := strings.Split(strings.TrimPrefix(text, "v"), ".")
	if len(parts) < 2 {
		return 0, errVersion
	}
	for _, part := range parts[:2] { // what follows them may carry "-rc.1" and the like
		if n, err := strconv.Atoi(part); err != nil || n < 0 {
			return 0, errVersion
		}
	}
	return strconv.Atoi(parts[0])
}
