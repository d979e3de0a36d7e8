package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/csi/call"
	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
)

const csiHelp = `Call any RPC of CSI of any driver.

CALL is a name of the specification, in any spelling: NodeGetInfo,
Node/NodeGetInfo or node-get-info. The request is JSON in an argument, in a file
(@FILE) or on standard input (-); --set changes single fields of it. The answer
is JSON on standard output, for a stream one line for each message. Secrets are
not shown.

The driver is the one at --endpoint or at $CSI_ENDPOINT, or the one named by
--driver below the root directory of a host or a kubelet.

Requests are checked against CSI's limits before they are sent.`

const csiExample = `  holdfast csi info --endpoint unix:///run/csi/csi.sock
  holdfast csi NodePublishVolume --template > request.json
  holdfast csi NodePublishVolume @request.json --secrets-from-file secrets.json
  holdfast csi create-volume --set name=one --set capacity_range.required_bytes=1Gi \
      --set volume_capabilities[0].mount.fs_type=ext4 \
      --set volume_capabilities[0].access_mode.mode=SINGLE_NODE_WRITER`

// csiTarget is which driver to call.
type csiTarget struct {
	endpoint, driver, root string
	timeout                time.Duration
}

func (t *csiTarget) bind(flags *pflag.FlagSet) {
	flags.StringVar(&t.endpoint, "endpoint", "", "the driver's socket, `unix:///PATH` (default: $CSI_ENDPOINT)")
	flags.StringVar(&t.driver, "driver", "", "`NAME` of a driver that is registered below --root")
	flags.StringVar(&t.root, "root", rootDefault(), "root `DIRECTORY` of a host or a kubelet, for --driver")
	flags.DurationVar(&t.timeout, "timeout", csiclient.DefaultTimeout, "how long a call may take")
}

func (t *csiTarget) dial(ctx context.Context) (*csiclient.Client, error) {
	if t.endpoint != "" && t.driver != "" {
		return nil, usageErrorf("--endpoint and --driver exclude each other")
	}
	if t.timeout <= 0 {
		return nil, usageErrorf("--timeout must be more than 0")
	}
	endpoint := t.endpoint
	if endpoint == "" && t.driver == "" {
		endpoint = os.Getenv("CSI_ENDPOINT")
	}
	if endpoint == "" && t.driver == "" {
		return nil, usageErrorf("which driver? Give --endpoint unix:///PATH, $CSI_ENDPOINT or --driver NAME")
	}
	if t.driver != "" {
		found, err := call.Locate(ctx, t.root, t.driver)
		if err != nil {
			return nil, err
		}
		endpoint = found
	}
	client, err := csiclient.Dial(endpoint, csiclient.Options{Driver: t.driver, Timeout: t.timeout})
	if err != nil {
		return nil, &UsageError{Err: err}
	}
	return client, nil
}

// csiFlags are the flags of the command csi.
type csiFlags struct {
	target   csiTarget
	set      []string
	secrets  []string
	fileSet  string
	template bool
	noCheck  bool
	compact  bool
}

func newCSICommand() *cobra.Command {
	var f csiFlags
	command := &cobra.Command{
		Use:               "csi CALL [JSON|@FILE|-]",
		Short:             "Call any RPC of CSI of any driver, JSON in and out",
		Long:              csiHelp,
		Example:           csiExample,
		Args:              arguments(cobra.MaximumNArgs(2)),
		ValidArgsFunction: completeCalls,
		RunE:              func(command *cobra.Command, given []string) error { return f.run(command, given) },
	}
	flags := command.Flags()
	f.target.bind(flags)
	flags.StringArrayVar(&f.set, "set", nil, "set a field of the request, `PATH=VALUE`; may be repeated")
	flags.StringArrayVar(&f.secrets, "secret", nil,
		"put a file's content into the request's secrets, `KEY=@FILE`; may be repeated")
	flags.StringVar(&f.fileSet, "secrets-from-file", "",
		"take the request's secrets from a JSON object in `FILE`, or from a directory with one file for each key")
	flags.BoolVar(&f.template, "template", false, "print an empty request with all its fields, and call nothing")
	flags.BoolVar(&f.noCheck, "no-check", false, "send what breaks the limits of CSI, too: how does the driver refuse it?")
	flags.BoolVar(&f.compact, "compact", false, "print the answer on one line")
	command.AddCommand(newCSIListCommand(), newCSIInfoCommand(), newCSIWatchCommand())
	return command
}

func completeCalls(_ *cobra.Command, given []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for _, method := range call.Methods() {
		if strings.HasPrefix(strings.ToLower(method.Name), strings.ToLower(begun)) {
			names = append(names, method.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (f *csiFlags) run(command *cobra.Command, given []string) error {
	if len(given) == 0 {
		return command.Help()
	}
	method, err := call.Find(given[0])
	if err != nil {
		return &UsageError{Err: err}
	}
	if f.template {
		text, err := method.Template()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(command.OutOrStdout(), "%s\n", text)
		return err
	}
	request, err := f.request(command, method, given[1:])
	if err != nil {
		return err
	}
	client, err := f.target.dial(command.Context())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return method.Call(command.Context(), client, request, func(answer proto.Message) error {
		text, err := call.JSON(answer, !method.Stream && !f.compact)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(command.OutOrStdout(), "%s\n", text)
		return err
	})
}

// request reads the request and checks it; its faults are usage errors.
func (f *csiFlags) request(
	command *cobra.Command, method call.Method, given []string,
) (request proto.Message, err error) {
	input := call.Input{Set: f.set}
	if len(given) > 0 {
		switch text := given[0]; {
		case text == "-" || strings.HasPrefix(text, "@"):
			if input.JSON, err = call.ReadFile(cmp.Or(strings.TrimPrefix(text, "@"), "-"), command.InOrStdin()); err != nil {
				return nil, fmt.Errorf("read the request: %w", err)
			}
		default:
			input.JSON, input.Public = []byte(text), true
		}
		if len(bytes.TrimSpace(input.JSON)) == 0 {
			return nil, usageErrorf("the request is empty; an empty request is {}")
		}
	}
	if input.Secrets, err = call.ReadSecrets(f.secrets, f.fileSet, command.InOrStdin()); err != nil {
		return nil, &UsageError{Err: err}
	}
	if request, err = method.Build(input); err != nil {
		return nil, &UsageError{Err: err}
	}
	if !f.noCheck {
		if err := method.Check(request); err != nil {
			return nil, &UsageError{Err: err}
		}
	}
	return request, nil
}

// output formats of lists.
const formatJSON = "json"

func newCSIListCommand() *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the RPCs of CSI with the fields of their requests and answers",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(command *cobra.Command, _ []string) error { return listCalls(command, format) },
	}
	command.Flags().StringVarP(&format, "output", "o", "", "json, or a table if it is not given")
	return command
}

func listCalls(command *cobra.Command, format string) error {
	out := command.OutOrStdout()
	switch format {
	case formatJSON:
		var all []any
		for _, method := range call.Methods() {
			all = append(all, method.Describe())
		}
		return writeJSON(command, all)
	case "":
	default:
		return usageErrorf("-o %s: want json, or nothing for a table", format)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "SERVICE\tRPC\tNOTE\tREQUEST\tANSWER")
	for _, method := range call.Methods() {
		var notes []string
		if method.Alpha {
			notes = append(notes, "alpha")
		}
		if method.Stream {
			notes = append(notes, "stream")
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", method.Service, method.Name, strings.Join(notes, ","),
			orDash(method.RequestFields()), orDash(method.AnswerFields()))
	}
	return table.Flush()
}

func orDash(names []string) string { return cmp.Or(strings.Join(names, ","), "-") }

func writeJSON(command *cobra.Command, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "%s\n", text)
	return err
}

func newCSIInfoCommand() *cobra.Command {
	var target csiTarget
	var format string
	command := &cobra.Command{
		Use:   "info",
		Short: "Show a driver's name, capabilities and node",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(command *cobra.Command, _ []string) error { return showInfo(command, &target, format) },
	}
	target.bind(command.Flags())
	command.Flags().StringVarP(&format, "output", "o", "", "json, or a table if it is not given")
	return command
}

func showInfo(command *cobra.Command, target *csiTarget, format string) error {
	if format != "" && format != formatJSON {
		return usageErrorf("-o %s: want json, or nothing for a table", format)
	}
	client, err := target.dial(command.Context())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	facts, err := call.Info(command.Context(), client)
	if err != nil {
		return err
	}
	if format == formatJSON {
		return writeJSON(command, facts)
	}
	table := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "SERVICE\tRPC\tFIELD\tVALUE")
	for _, fact := range facts {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", fact.Service, fact.Call, cmp.Or(fact.Name, "-"), fact.Value)
	}
	return table.Flush()
}
