package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/holdfast-csi/holdfast/"

// rule forbids the packages below From (module-relative, "…" for all below)
// to import those below any of Not. Direct rules check the package's own
// imports; the others at everything that ends up in the binary with it.
type rule struct {
	from   string
	except []string
	not    []string
	direct bool
	why    string
}

func rules() []rule {
	const grpcCodes, clientGo = "google.golang.org/grpc/codes", "k8s.io/client-go"
	const contentSuite = "internal/kube/snapshot/content/contenttest" // tests, shared by two packages
	awsCredentials := []string{"github.com/aws/aws-sdk-go-v2/service", "github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/credentials"}
	return []rule{
		{from: "internal/backend/", not: own("internal/csi/server", "internal/kube", "internal/host", "internal/csi/client"),
			why: "a backend is below the seam: it must serve any caller"},
		{from: "internal/backend/local", not: own("internal/backend/ebs"),
			why: "no backend knows another"},
		{from: "internal/backend/ebs/nodeside", not: append(own("internal/backend/ebs/cloud"), awsCredentials...),
			why: "a node makes no EC2 call and has no credentials, so that one that is taken over endangers no other"},
		{from: "internal/backend/ebs/metadata", not: append(own("internal/backend/ebs/cloud"), awsCredentials...),
			why: "an instance reads its identity without credentials"},
		{from: "internal/csi/server", not: append(own("internal/kube", "internal/host", "internal/cli"), clientGo),
			why: "the driver answers any orchestrator, and its idle memory is a promise"},
		{from: "internal/kube", not: own("internal/csi/server", "internal/node", "internal/backend/guard", "internal/backend/local"),
			why: "controllers work with any vendor's driver, so they see drivers only through csi/client"},
		{from: "internal/host", not: own("internal/csi/server", "internal/node", "internal/backend/guard", "internal/backend/local"),
			why: "the host runs any vendor's driver, so it sees drivers only through csi/client"},
		{from: "internal/claim", not: own("internal/csi/server", "internal/node", "internal/host", "internal/kube", "internal/backend/guard", "internal/backend/local"),
			why: "the rules of claims are pure, and shared by the host and the controllers"},
		{from: "cmd/holdfast", not: own("simulation"),
			why: "a product ships no simulator"},
		{from: "cmd/csi-proxy", not: own("simulation"),
			why: "a product ships no simulator"},
		{from: "internal/linux", not: own("internal/csi", "internal/node", "internal/backend/", "internal/kube", "internal/host"),
			why: "what the kernel does is below every backend"},
		{from: "internal/lifecycle", not: append(own("internal/csi/server", "internal/node", "internal/host", "internal/kube", "internal/csi/client"), clientGo),
			why: "decisions are pure, and the same for the host and the controllers"},
		{from: "internal/kube", not: own("internal/backend"), direct: true,
			why: "what a driver's answer means is decided by internal/lifecycle, for the host too"},
		{from: "internal/host", not: own("internal/backend"), direct: true,
			why: "what a driver's answer means is decided by internal/lifecycle, for the controllers too"},
		{from: "internal/node", not: own("internal/csi/server", "internal/kube", "internal/host", "internal/cli", "internal/backend/local", "internal/backend/ebs"),
			why: "the node engine is written once for all backends"},
		{from: "internal/csiproxy", except: []string{"internal/csiproxy/cli"}, not: append(own("internal/csi/server", "internal/kube", "internal/host", "internal/cli", "internal/node/windows"), clientGo, "github.com/aws/"),
			why: "the proxy is privileged and serves any driver: what it does not link cannot be abused"},
		{from: "internal/node/windows", not: append(own("internal/csi/server", "internal/kube", "internal/host", "internal/cli", "internal/backend/local", "internal/backend/ebs", "internal/csiproxy/host", "internal/csiproxy/server", "internal/csiproxy/win32/native"), clientGo),
			why: "the node engine must not depend on whether it calls a proxy, or on one backend"},
		{from: "internal/policy", not: append(own("internal/csi/server", "internal/kube", "internal/host", "internal/node", "internal/backend"), clientGo),
			why: "a rule about objects needs nothing but the objects"},
		{from: "internal/", except: []string{"internal/grpcserver", "internal/csi/server", "internal/csi/client", "internal/csi/operations", "internal/csiproxy", "internal/csi/statuscode", contentSuite}, not: []string{grpcCodes, "google.golang.org/grpc/status"}, direct: true,
			why: "gRPC status codes stay at the edge; everything below speaks sentinel errors"},
		{from: "internal/", except: []string{"internal/backend/ebs"}, not: []string{"github.com/aws/"}, direct: true,
			why: "the AWS SDK belongs to the ebs backend"},
		{from: "", not: []string{"k8s.io/kubernetes", "k8s.io/apiserver"},
			why: "Kubernetes itself is a dependency of the nested test module only"},
		{from: "", except: []string{"simulation/apiserver", "simulation/lab/kube", contentSuite}, not: []string{
			"k8s.io/client-go/kubernetes", "k8s.io/client-go/discovery", "k8s.io/client-go/informers", "k8s.io/client-go/applyconfigurations",
			"k8s.io/client-go/tools/leaderelection", "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset",
		}, why: "client-go's clientsets register every API group of Kubernetes, 11 MB of the binary; internal/kube/api has those that are used, also for tests' own clients: simulation/apiserver"},
		{from: "internal/", except: []string{"internal/linux/command", "internal/host/workload", "internal/host/supervise", "internal/grpcserver/peertest"}, not: []string{"os/exec"}, direct: true,
			why: "programs are spawned through one interface with a context, a bound and a captured stderr"},
	}
}

func own(packages ...string) []string {
	full := make([]string, len(packages))
	for i, p := range packages {
		full[i] = module + p
	}
	return full
}

type goPackage struct {
	ImportPath    string
	Imports, Deps []string
}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, r := range rules() {
			if !within(name, r.from) || slices.ContainsFunc(r.except, func(e string) bool { return within(name, e) }) {
				continue
			}
			imports := p.Deps
			if r.direct {
				imports = p.Imports
			}
			for _, imported := range imports {
				if slices.ContainsFunc(r.not, func(n string) bool { return within(imported, n) }) {
					t.Errorf("%s imports %s: %s", name, imported, r.why)
				}
			}
		}
	}
}

// TestImports_rulesNameWhatExists keeps a rule from passing because its
// subject was renamed.
func TestImports_rulesNameWhatExists(t *testing.T) {
	packages := list(t)
	for _, r := range rules() {
		if !slices.ContainsFunc(packages, func(p goPackage) bool { return within(strings.TrimPrefix(p.ImportPath, module), r.from) }) {
			t.Errorf("no package is below %q", r.from)
		}
	}
}

func list(t *testing.T) []goPackage {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", module+"...")
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 10 {
		t.Fatalf("go list found %d packages", len(packages))
	}
	return packages
}
