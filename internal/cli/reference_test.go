package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestReference_namesEveryFlagOfTheDriver keeps docs/reference whole: the flags of the
// Kubernetes controllers have a separate page, and so have the hidden ones, which are
// those of the AWS EBS CSI driver.
func TestReference_namesEveryFlagOfTheDriver(t *testing.T) {
	pages := map[string]string{}
	for _, name := range []string{"driver.md", "kubernetes.md", "aws-ebs-csi-driver.md"} {
		text, err := os.ReadFile("../../docs/reference/" + name)
		if err != nil {
			t.Fatal(err)
		}
		pages[name] = string(text)
	}
	var kube kubeFlags
	ofControllers := pflag.NewFlagSet("kubernetes", pflag.ContinueOnError)
	kube.bind(ofControllers)
	named := func(page, flag string) bool {
		return strings.Contains(pages[page], "`--"+flag+"`") || strings.Contains(pages[page], "`--"+flag+"=")
	}
	newDriverCommand("test").Flags().VisitAll(func(f *pflag.Flag) {
		page := "driver.md"
		switch {
		case ofControllers.Lookup(f.Name) != nil:
			page = "kubernetes.md"
		case f.Hidden:
			page = "aws-ebs-csi-driver.md"
		}
		if !named(page, f.Name) {
			t.Errorf("docs/reference/%s does not name --%s (%s)", page, f.Name, f.Usage)
		}
	})
}
