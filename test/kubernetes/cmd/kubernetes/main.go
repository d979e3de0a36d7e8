// Command kubernetes is the API server, the controller manager, the scheduler and the
// kubelet in one executable: what ../other-version builds of other versions of Kubernetes.
package main

import "github.com/holdfast-csi/holdfast/test/kubernetes/programs"

func main() { programs.Run(programs.Kubernetes()) }
