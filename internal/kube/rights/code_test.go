package rights

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// places are the packages whose calls each role makes.
func places() map[Role][]string {
	return map[Role][]string{
		Provision:     {"provision", "topology"},
		Attach:        {"attach"},
		Resize:        {"resize"},
		Modify:        {"modify"},
		Snapshot:      {"snapshot"},
		GroupSnapshot: {"groupsnapshot"},
		Health:        {"health"},
		Capacity:      {"capacity", "topology"},
	}
}

// accessors are the caches of cluster.Set and what they list and watch.
func accessors() map[string]Right {
	return map[string]Right{
		"Claims": {Resource: "persistentvolumeclaims"}, "Volumes": {Resource: "persistentvolumes"}, "Nodes": {Resource: "nodes"},
		"Classes": {Group: storageGroup, Resource: "storageclasses"}, "Attachments": {Group: storageGroup, Resource: "volumeattachments"},
		"CSINodes": {Group: storageGroup, Resource: "csinodes"}, "AttributesClasses": {Group: storageGroup, Resource: "volumeattributesclasses"},
		"Capacities":      {Group: storageGroup, Resource: "csistoragecapacities", Own: true},
		"SnapshotObjects": {Group: snapshotGroup, Resource: "volumesnapshots"}, "Contents": {Group: snapshotGroup, Resource: "volumesnapshotcontents"},
		"SnapshotClasses": {Group: snapshotGroup, Resource: "volumesnapshotclasses"},
		"GroupContents":   {Group: groupsGroup, Resource: "volumegroupsnapshotcontents"}, "GroupClasses": {Group: groupsGroup, Resource: "volumegroupsnapshotclasses"},
	}
}

// groups are the API groups behind the methods of client-go's clientsets.
func groups() map[string]string {
	return map[string]string{
		"CoreV1": "", "StorageV1": storageGroup, "AppsV1": "apps", "CoordinationV1": "coordination.k8s.io",
		"SnapshotV1": snapshotGroup, "GroupsnapshotV1": groupsGroup,
	}
}

// own kinds are read and written in the process's own namespace alone.
func ownKinds() []string {
	return []string{"csistoragecapacities", "leases", "configmaps", "pods", "replicasets"}
}

// TestTable_isWhatTheCodeDoes reads the controllers' code: every cache that
// they ask for and every call that they make of a client is in the table, and
// the table has nothing else.
func TestTable_isWhatTheCodeDoes(t *testing.T) {
	for role, packages := range places() {
		t.Run(string(role), func(t *testing.T) {
			used := map[Right]string{}
			for _, name := range packages {
				scan(t, filepath.Join("..", name), used)
			}
			delete(used, Secrets())
			declared := map[Right]bool{}
			for _, mode := range []Mode{Central, Node} {
				for _, right := range Of(mode, role) {
					declared[right] = true
				}
			}
			for _, right := range slices.SortedFunc(maps.Keys(used), compare) {
				if !declared[right] {
					t.Errorf("%s: the code does %s, which the table does not have", used[right], right)
				}
			}
			for _, right := range slices.SortedFunc(maps.Keys(declared), compare) {
				if _, found := used[right]; !found {
					t.Errorf("the table has %s, which no code does", right)
				}
			}
		})
	}
}

// scan adds what the package in a directory does, with the place where it does.
func scan(t *testing.T, directory string, used map[Right]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil || len(files) == 0 {
		t.Skipf("no code in %s yet (%v)", directory, err)
	}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, right := range rightsOf(call) {
				used[right] = set.Position(call.Pos()).String()
			}
			return true
		})
	}
}

// rightsOf are those that a call itself needs.
func rightsOf(call *ast.CallExpr) []Right {
	receiver, method := selected(call.Fun)
	if _, name := selected(receiver); name == "Set" {
		cached, known := accessors()[method]
		if !known {
			return nil
		}
		list, watch := cached, cached
		list.Verb, watch.Verb = "list", "watch"
		return []Right{list, watch}
	}
	kind, ok := receiver.(*ast.CallExpr)
	if !ok {
		return nil
	}
	client, resource := selected(kind.Fun)
	of, ok := client.(*ast.CallExpr)
	if !ok {
		return nil
	}
	_, version := selected(of.Fun)
	group, known := groups()[version]
	if !known {
		return nil
	}
	right := Right{Group: group, Resource: strings.ToLower(resource), Verb: strings.ToLower(method)}
	right.Own = slices.Contains(ownKinds(), right.Resource)
	if method == "UpdateStatus" {
		right.Verb, right.Subresource = "update", "status"
	}
	if last, ok := call.Args[len(call.Args)-1].(*ast.BasicLit); ok && method == "Patch" {
		right.Subresource = strings.Trim(last.Value, `"`)
	}
	return []Right{right}
}

// selected splits x.y into x and "y".
func selected(e ast.Expr) (ast.Expr, string) {
	if selector, ok := e.(*ast.SelectorExpr); ok {
		return selector.X, selector.Sel.Name
	}
	return nil, ""
}
