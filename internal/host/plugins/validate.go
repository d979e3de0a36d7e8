package plugins

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// maximumName is how long a driver's name may be (CSI spec 1.13, GetPluginInfoResponse).
const maximumName = 63

// maximumVersions bounds what a plugin may claim: each bad version is a part of the error.
const maximumVersions = 100

// validate has the kubelet's checks of a driver.
func validate(info *registration.PluginInfo) error {
	if err := validateName(info.GetName()); err != nil {
		return err
	}
	return validateVersions(info.GetName(), info.GetSupportedVersions())
}

func validateName(name string) error {
	if len(name) > maximumName {
		return fmt.Errorf("the driver's name %.100q has %d bytes, more than %d", name, len(name), maximumName)
	}
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(name)); len(problems) > 0 {
		return fmt.Errorf("the driver's name %q: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// validateVersions requires 1.x as the highest version; higher ones, and values that
// are not versions, are ignored.
func validateVersions(name string, versions []string) error {
	if len(versions) == 0 {
		return fmt.Errorf("driver %s names no version of the registration interface", name)
	}
	if len(versions) > maximumVersions {
		return fmt.Errorf("driver %s names %d versions of the registration interface, more than %d", name, len(versions), maximumVersions)
	}
	served := false
	var problems []error
	for _, text := range versions {
		parsed, err := version.ParseGeneric(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("version %.100q is not a version", text))
			continue // the kubelet passes it over
		}
		served = served || parsed.Major() == 1
	}
	if !served {
		return errors.Join(append([]error{fmt.Errorf("driver %s serves the versions %.1000s of the registration interface; this host needs 1.x",
			name, strings.Join(versions, ", "))}, problems...)...)
	}
	return nil
}
