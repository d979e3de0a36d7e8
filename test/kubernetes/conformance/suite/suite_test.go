// Package suite is the Kubernetes project's own suite of tests for CSI drivers
// that are installed already ("external storage"), without its other end-to-end tests.
// Command conformance runs it.
package suite

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	"k8s.io/kubernetes/test/e2e/storage/external"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"

	// The framework's own hooks: the output of a failed spec, and the wait for nodes.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	driver := flag.String("driver", "", "definition file of the driver; unlike storage.testdriver, it refuses fields that it does not know")
	flag.Parse()
	if err := define(*driver); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	if root := framework.TestContext.RepoRoot; root != "" {
		testfiles.AddFileSource(testfiles.RootFileSource{Root: root}) // of the classes that the definition names
	}
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

// define makes the specs of a driver.
func define(driver string) error {
	if driver == "" {
		return nil
	}
	if err := check(driver); err != nil {
		return err
	}
	return external.AddDriverDefinition(driver)
}

func TestExternalStorage(t *testing.T) {
	e2e.RunE2ETests(t)
}
