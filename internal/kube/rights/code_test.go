package rights

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// row lists the packages that make the calls of some roles.
type row struct {
	roles    []Role
	packages []string
}

func rows() []row {
	return []row{
		{[]Role{Provision, CrossNamespace}, []string{"provision", "topology"}},
		{[]Role{Attach}, []string{"attach"}},
		{[]Role{Resize, Modify}, []string{"resize"}},
		{[]Role{Snapshot}, []string{"snapshot", "snapshot/content"}},
		{[]Role{GroupSnapshot}, []string{"groupsnapshot", "snapshot/content"}},
		{[]Role{Health}, []string{"health"}},
		{[]Role{Capacity}, []string{"capacity", "topology"}},
		{[]Role{Coordinate, CrossNamespace}, []string{"coordinate"}},
		{[]Role{Metadata}, []string{"nodemeta"}},
		{[]Role{StartupTaint}, []string{"taint"}},
		{[]Role{PreStop}, []string{"drain"}},
		{[]Role{NodeLabels}, []string{"nodelabel"}},
		{[]Role{LabelPolicy}, []string{"unlabelled"}},
	}
}

// accessors are the caches of cluster.Set and what they list and watch.
func accessors() map[string]Right {
	return map[string]Right{
		"Claims": {Resource: "persistentvolumeclaims"}, "Volumes": {Resource: "persistentvolumes"}, "Nodes": {Resource: "nodes"},
		"Classes": {Group: storageGroup, Resource: "storageclasses"}, "Attachments": {Group: storageGroup, Resource: "volumeattachments"},
		"CSINodes": {Group: storageGroup, Resource: "csinodes"}, "AttributesClasses": {Group: storageGroup, Resource: "volumeattributesclasses"},
		"Capacities":      {Group: storageGroup, Resource: "csistoragecapacities", In: Own},
		"SnapshotObjects": {Group: snapshotGroup, Resource: "volumesnapshots"}, "Contents": {Group: snapshotGroup, Resource: "volumesnapshotcontents"},
		"SnapshotClasses": {Group: snapshotGroup, Resource: "volumesnapshotclasses"},
		"Grants":          {Group: gatewayGroup, Resource: "referencegrants"},
		"GroupContents":   {Group: groupsGroup, Resource: "volumegroupsnapshotcontents"}, "GroupClasses": {Group: groupsGroup, Resource: "volumegroupsnapshotclasses"},
	}
}

// groups are the API groups behind the methods of client-go's clientsets.
func groups() map[string]string {
	return map[string]string{
		"CoreV1": "", "StorageV1": storageGroup, "AppsV1": "apps", "CoordinationV1": "coordination.k8s.io",
		"AdmissionV1": admissionGroup, "SnapshotV1": snapshotGroup, "GroupsnapshotV1": groupsGroup,
	}
}

// ownKinds are read and written in the process's namespace only.
func ownKinds() []string {
	return []string{"csistoragecapacities", "leases", "pods", "replicasets"}
}

// TestTable_matchesTheCode reads the controllers' code: every cache that
// they ask for and every call that they make of a client is in the table, and
// the table has nothing else.
func TestTable_matchesTheCode(t *testing.T) {
	for _, row := range rows() {
		t.Run(string(row.roles[0]), func(t *testing.T) {
			used := usedBy(t, row.packages)
			for _, right := range Optional() {
				delete(used, right)
			}
			declared := map[Right]bool{}
			for _, mode := range []Mode{Central, Node} {
				for _, right := range Of(mode, row.roles...) {
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

// usedBy returns the rights that the code of packages needs, each with a source position.
func usedBy(t *testing.T, packages []string) map[Right]string {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range packages {
		files = append(files, parse(t, set, filepath.Join("..", name))...)
	}
	r := reader{clients: map[string]Right{"Nodes": {Resource: "nodes"}}} // a field of nodemeta.Reader
	for _, file := range files {
		ast.Inspect(file, r.keep)
	}
	used := map[Right]string{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				for _, right := range r.rightsOf(call) {
					used[right] = set.Position(call.Pos()).String()
				}
			}
			return true
		})
	}
	return used
}

func parse(t *testing.T, set *token.FileSet, directory string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s has no Go files (%v): correct the packages in rows", directory, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// reader records the names of variables and fields that are clients of one kind.
type reader struct {
	clients map[string]Right
}

// keep records "name := clientset.Group().Kind()" and "Name: clientset.Group().Kind()",
// and the arguments of content.New, one of which is the API of its writer.
func (r reader) keep(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		name, ok := n.Lhs[0].(*ast.Ident)
		if kind, known := kindOf(n.Rhs[0]); ok && known {
			r.clients[name.Name] = kind
		}
	case *ast.CallExpr:
		if of, method := selected(n.Fun); method == "New" && isNamed(of, "content") {
			for _, argument := range n.Args {
				if kind, ok := kindOf(argument); ok {
					r.clients["API"] = kind
				}
			}
		}
	case *ast.KeyValueExpr:
		name, ok := n.Key.(*ast.Ident)
		if kind, known := kindOf(n.Value); ok && known {
			r.clients[name.Name] = kind
		}
	}
	return true
}

// rightsOf returns the rights that a call needs.
func (r reader) rightsOf(call *ast.CallExpr) []Right {
	receiver, method := selected(call.Fun)
	if right, ok := r.ofStore(call); ok {
		return []Right{right}
	}
	if kind, ok := followed(call); ok {
		list, watch := kind, kind
		list.Verb, watch.Verb = "list", "watch"
		return []Right{list, watch}
	}
	if _, name := selected(receiver); name == "Set" {
		cached, known := accessors()[method]
		if !known {
			return nil
		}
		list, watch := cached, cached
		list.Verb, watch.Verb = "list", "watch"
		return []Right{list, watch}
	}
	right, found := r.client(receiver)
	if !found || len(call.Args) == 0 || !slices.Contains([]string{"Get", "List", "Watch", "Create", "Update", "UpdateStatus", "Patch", "Delete"}, method) {
		return nil
	}
	right.Verb = strings.ToLower(method)
	if method == "UpdateStatus" {
		right.Verb, right.Subresource = "update", "status"
	}
	if method == "Patch" {
		right.Subresource = lastWord(call)
	}
	if slices.Contains(ownKinds(), right.Resource) && !slices.Contains(Optional(), right) {
		right.In = Own
	}
	return []Right{right}
}

// client returns the kind of a client, or of the variable or field that has it.
func (r reader) client(e ast.Expr) (Right, bool) {
	if kind, ok := kindOf(e); ok {
		return kind, true
	}
	_, name := selected(e)
	if ident, ok := e.(*ast.Ident); ok {
		name = ident.Name
	}
	kind, ok := r.clients[name]
	return kind, ok
}

// ofStore returns the right of a call such as store.Merge(ctx, client, object, …) of a
// cluster.Store.
func (r reader) ofStore(call *ast.CallExpr) (Right, bool) {
	_, method := selected(call.Fun)
	verb, ok := map[string]string{"Patch": "patch", "PatchLive": "patch", "Merge": "patch", "Live": "get", "Retry": "get"}[method]
	if !ok || len(call.Args) < 3 {
		return Right{}, false
	}
	right, found := r.client(call.Args[1])
	right.Verb, right.Subresource = verb, lastWord(call)
	return right, found
}

// lastWord returns the last argument of a call if it is a string literal.
func lastWord(call *ast.CallExpr) string {
	last, ok := call.Args[len(call.Args)-1].(*ast.BasicLit)
	if !ok {
		return ""
	}
	return strings.Trim(last.Value, `"`)
}

// followed is the kind in a call such as follow.Objects(ctx, c.CoreV1().Nodes(), …).
func followed(call *ast.CallExpr) (Right, bool) {
	of, method := selected(call.Fun)
	if !isNamed(of, "follow") || method != "Objects" {
		return Right{}, false
	}
	return kindOf(call.Args[1])
}

func isNamed(e ast.Expr, name string) bool {
	ident, ok := e.(*ast.Ident)
	return ok && ident.Name == name
}

// kindOf is the kind of a client such as c.CoreV1().Pods(namespace).
func kindOf(e ast.Expr) (Right, bool) {
	kind, ok := e.(*ast.CallExpr)
	if !ok {
		return Right{}, false
	}
	client, resource := selected(kind.Fun)
	of, ok := client.(*ast.CallExpr)
	if !ok {
		return Right{}, false
	}
	_, version := selected(of.Fun)
	group, known := groups()[version]
	return Right{Group: group, Resource: strings.ToLower(resource)}, known
}

// selected splits x.y into x and "y".
func selected(e ast.Expr) (ast.Expr, string) {
	if selector, ok := e.(*ast.SelectorExpr); ok {
		return selector.X, selector.Sel.Name
	}
	return nil, ""
}
