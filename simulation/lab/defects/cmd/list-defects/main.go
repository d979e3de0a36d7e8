// Command list-defects prints the names of the known defects of a door: kube or host.
package main

import (
	"fmt"
	"os"

	"github.com/holdfast-csi/holdfast/simulation/lab/defects"
)

func main() {
	list := defects.Kube()
	if len(os.Args) > 1 && os.Args[1] == "host" {
		list = defects.Host()
	}
	for _, d := range list {
		fmt.Println(d.Name)
	}
}
