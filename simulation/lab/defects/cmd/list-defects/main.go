// Command list-defects prints the names of the known defects of a door: kube, nodes or host.
package main

import (
	"fmt"
	"os"

	"github.com/holdfast-csi/holdfast/simulation/lab/defects"
)

func main() {
	list := defects.Kube()
	switch {
	case len(os.Args) > 1 && os.Args[1] == "host":
		list = defects.Host()
	case len(os.Args) > 1 && os.Args[1] == "nodes":
		list = defects.Nodes()
	}
	for _, d := range list {
		fmt.Println(d.Name)
	}
}
