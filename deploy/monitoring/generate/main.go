// Command generate writes the files of deploy/monitoring that are made from its
// code: the rule file and the dashboards, which the chart has, and the page of alerts.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/holdfast-csi/holdfast/deploy/monitoring/files"
)

func main() {
	root := flag.String("root", "../..", "`DIRECTORY` of the project")
	flag.Parse()
	if err := files.Write(*root); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}
