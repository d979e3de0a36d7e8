package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

func newLogsCommand() *cobra.Command {
	var c hostClient
	request := api.LogRequest{}
	command := &cobra.Command{
		Use:   "logs POD",
		Short: "Show the output of a pod's containers",
		Example: `  holdfast logs web
  holdfast logs web -c proxy -f`,
		Args: one("which pod"),
		RunE: func(command *cobra.Command, given []string) error {
			request.Namespace = c.namespace
			request.Pod = strings.TrimPrefix(strings.TrimPrefix(given[0], "pods/"), "pod/")
			if checkNames([]string{request.Pod}) != nil {
				return usageErrorf("%q is not a pod's name", given[0])
			}
			client := c.dial()
			defer client.Close()
			return ended(command.Context(), client.Logs(command.Context(), request, command.OutOrStdout()))
		},
		ValidArgsFunction: c.completePods,
	}
	flags := command.Flags()
	c.bind(flags)
	c.bindNamespace(flags)
	flags.StringVarP(&request.Container, "container", "c", "", "`NAME` of the container, if the pod has several")
	flags.BoolVarP(&request.Follow, "follow", "f", false, "keep running until the container ends")
	flags.BoolVarP(&request.Previous, "previous", "p", false, "of the run before the last restart")
	c.completeFlags(command)
	flags.Int64Var(&request.Tail, "tail", -1, "only the last `LINES`; -1: all")
	return command
}
