// Command list-defects prints the names of the known defects.
package main

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/simulation/lab/defects"
)

func main() {
	for _, d := range defects.Kube() {
		fmt.Println(d.Name)
	}
}
