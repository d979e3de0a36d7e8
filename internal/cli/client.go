package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// hostClient are the flags of every command that talks to a running host.
type hostClient struct {
	root      string
	socket    string
	namespace string
	flags     *pflag.FlagSet
}

func (h *hostClient) bind(flags *pflag.FlagSet) {
	h.flags = flags
	flags.StringVar(&h.root, "root", rootDefault(), "root `DIRECTORY` of the host")
	flags.StringVar(&h.socket, "host", os.Getenv(socketVariable), "`SOCKET` of the host (default: ROOT/host.sock)")
}

func (h *hostClient) bindNamespace(flags *pflag.FlagSet) {
	h.namespace = manifest.DefaultNamespace
	flags.VarP((*namespaceValue)(&h.namespace), "namespace", "n", "`NAMESPACE` of the objects")
}

// namespaceValue is a flag that names one namespace. The API takes an empty name as all
// of them: a variable of a script that is not set would have delete --all reach
// further than its user meant.
type namespaceValue string

// String implements pflag.Value.
func (n *namespaceValue) String() string { return string(*n) }

// Type implements pflag.Value.
func (*namespaceValue) Type() string { return "string" }

// Set implements pflag.Value.
func (n *namespaceValue) Set(given string) error {
	if problems := content.IsDNS1123Label(given); len(problems) > 0 {
		return fmt.Errorf("%q is not the name of a namespace; leave the flag out for %q", given, manifest.DefaultNamespace)
	}
	*n = namespaceValue(given)
	return nil
}

// completeFlags offers the namespaces that the running host has.
func (h *hostClient) completeFlags(command *cobra.Command) {
	err := command.RegisterFlagCompletionFunc("namespace", func(
		command *cobra.Command, _ []string, _ string,
	) ([]string, cobra.ShellCompDirective) {
		return h.names(command.Context(), "namespaces", "", nil), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // a programming error: the flag does not exist
	}
}

// dial makes a client of the host at --host or, without it, below --root. A given
// --root is stronger than the environment's socket.
func (h *hostClient) dial() *api.Client {
	if h.socket == "" || h.isGiven("root") && !h.isGiven("host") {
		return api.DialRoot(h.root)
	}
	return api.Dial(h.socket)
}

// directory is the host's root directory on this machine.
func (h *hostClient) directory() (string, error) {
	if h.socket != "" && !h.isGiven("root") && filepath.Base(h.socket) == api.SocketName {
		return filepath.Abs(filepath.Dir(h.socket))
	}
	return filepath.Abs(h.root)
}

func (h *hostClient) isGiven(flag string) bool { return h.flags != nil && h.flags.Changed(flag) }

// selection is a kind and the names of the requested objects; none means all.
type selection struct {
	tableKind
	names []string
}

// parseSelections reads KIND[,KIND] [NAME…] and KIND/NAME….
func parseSelections(given []string) ([]selection, error) {
	if len(given) == 0 {
		return nil, usageErrorf("say what: a kind, such as pvc, or KIND/NAME; there are %s", kindNames())
	}
	if !strings.Contains(given[0], "/") {
		return parseKinds(given[0], given[1:])
	}
	var selections []selection
	for _, word := range given {
		kindName, name, both := strings.Cut(word, "/")
		if !both || name == "" || strings.Contains(name, "/") {
			return nil, usageErrorf("%q is not KIND/NAME, as the others are", word)
		}
		if err := checkNames([]string{name}); err != nil {
			return nil, err
		}
		kind, known := tableKindNamed(kindName)
		if !known {
			return nil, unknownKind(kindName)
		}
		if last := len(selections) - 1; last >= 0 && selections[last].kind.Resource == kind.kind.Resource {
			selections[last].names = append(selections[last].names, name)
			continue
		}
		selections = append(selections, selection{tableKind: kind, names: []string{name}})
	}
	return selections, nil
}

func parseKinds(list string, names []string) ([]selection, error) {
	if list == "all" {
		if len(names) > 0 {
			return nil, usageErrorf("all takes no names")
		}
		return everyKind(), nil
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "/") }) {
		return nil, usageErrorf("either KIND NAME… or KIND/NAME…, not both")
	}
	if err := checkNames(names); err != nil {
		return nil, err
	}
	var selections []selection
	for word := range strings.SplitSeq(list, ",") {
		kind, known := tableKindNamed(word)
		if !known {
			return nil, unknownKind(word)
		}
		selections = append(selections, selection{tableKind: kind, names: names})
	}
	return selections, nil
}

// checkNames refuses names that no object can have, such as "..".
func checkNames(names []string) error {
	for _, name := range names {
		if problems := content.IsPathSegmentName(name); name == "" || len(problems) > 0 {
			return usageErrorf("%q is not a name", name)
		}
	}
	return nil
}

// everyKind lists the kinds of `get all`: without Secrets, ConfigMaps and events.
func everyKind() []selection {
	var selections []selection
	for _, kind := range tableKinds() {
		if resource := kind.kind.Resource; !store.IsSealed(kind.kind) && resource != "events" && resource != "namespaces" {
			selections = append(selections, selection{tableKind: kind})
		}
	}
	return selections
}

func kindNames() string {
	var names []string
	for _, kind := range tableKinds() {
		name := kind.kind.Resource
		if len(kind.short) > 0 {
			name += " (" + strings.Join(kind.short, ", ") + ")"
		}
		names = append(names, name)
	}
	return strings.Join(append(names, driversWord), ", ")
}

// singular is the kind's name in front of an object's.
func singular(kind store.Kind) string {
	name := strings.ToLower(kind.Kind)
	if kind.Group != "" {
		name += "." + kind.Group
	}
	return name
}

// completionLimit is how long a shell waits for names.
const completionLimit = time.Second

// complete offers kinds, several with commas between them, and then the names
// that the running host has.
func (h *hostClient) complete(
	command *cobra.Command, given []string, begun string,
) ([]string, cobra.ShellCompDirective) {
	if kindName, _, slash := strings.Cut(begun, "/"); slash {
		return h.names(command.Context(), kindName, kindName+"/", nil), cobra.ShellCompDirectiveNoFileComp
	}
	if len(given) > 0 {
		if strings.Contains(given[0], "/") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return h.names(command.Context(), given[0], "", given[1:]), cobra.ShellCompDirectiveNoFileComp
	}
	before := begun[:strings.LastIndex(begun, ",")+1]
	var kinds []string
	for _, kind := range tableKinds() {
		for _, word := range append([]string{kind.kind.Resource}, kind.short...) {
			kinds = append(kinds, before+word)
		}
	}
	return kinds, cobra.ShellCompDirectiveNoFileComp
}

// completeAll is complete for commands that show drivers and everything, too.
func (h *hostClient) completeAll(
	command *cobra.Command, given []string, begun string,
) ([]string, cobra.ShellCompDirective) {
	words, directive := h.complete(command, given, begun)
	if len(given) == 0 && !strings.ContainsAny(begun, "/,") {
		words = append(words, driversWord, "all")
	}
	return words, directive
}

// completeNamed offers KIND/ of some kinds, and then the names.
func (h *hostClient) completeNamed(kinds ...string) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		if kind, _, slash := strings.Cut(begun, "/"); slash {
			known := kind
			if kind == "snapshot" { // a word of why alone
				known = "volumesnapshot"
			}
			return h.names(command.Context(), known, kind+"/", nil), cobra.ShellCompDirectiveNoFileComp
		}
		var words []string
		for _, kind := range kinds {
			words = append(words, kind+"/")
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// completePods offers the names of pods.
func (h *hostClient) completePods(
	command *cobra.Command, given []string, _ string,
) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return h.names(command.Context(), "pods", "", nil), cobra.ShellCompDirectiveNoFileComp
}

func (h *hostClient) names(ctx context.Context, kindName, prefix string, without []string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	client := h.dial()
	defer client.Close()
	var names []string
	if isDrivers(kindName) {
		drivers, _ := client.Drivers(ctx) // as below
		for _, driver := range drivers {
			if !slices.Contains(without, driver.Name) {
				names = append(names, prefix+driver.Name)
			}
		}
		return names
	}
	kind, known := tableKindNamed(kindName)
	if !known {
		return nil
	}
	listed, _ := client.List(ctx, kind.kind, api.ListOptions{Namespace: h.namespace}) // a shell cannot show an error
	for _, object := range listed.Items {
		if !slices.Contains(without, object.GetName()) {
			names = append(names, prefix+object.GetName())
		}
	}
	return names
}

// ended returns nil for an end that the user requested.
func ended(ctx context.Context, err error) error {
	if isInterrupted(ctx, err) {
		return nil
	}
	return err
}

// isInterrupted reports whether an error is that of a command that the user ended.
func isInterrupted(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) && ctx.Err() != nil
}

// readManifests reads the files of -f.
func readManifests(command *cobra.Command, names []string) ([]manifest.File, error) {
	if len(names) == 0 {
		return nil, usageErrorf("-f FILE is not given")
	}
	expanded, err := expandDirectories(names)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	files := make([]manifest.File, 0, len(expanded))
	for _, name := range expanded {
		data, err := readFile(name, command.InOrStdin())
		if err != nil {
			return nil, err
		}
		files = append(files, manifest.File{Name: name, Data: data})
	}
	return files, nil
}
