package cluster

import "path/filepath"

// layout has the paths in a cluster's state directory.
type layout string

func (l layout) path(parts ...string) string {
	return filepath.Join(append([]string{string(l)}, parts...)...)
}

// record is what Down needs to end the cluster, and Open to reach it.
func (l layout) record() string { return l.path("cluster.json") }

// kubeconfig is the administrator's.
func (l layout) kubeconfig() string { return l.path("kubeconfig") }

// control is the supervisor's socket.
func (l layout) control() string { return l.path("control.sock") }

// secret is a file of the control plane: keys, certificates, kubeconfigs.
func (l layout) secret(name string) string { return l.path("credentials", name) }

// config is a configuration file of the control plane.
func (l layout) config(name string) string { return l.path("config", name) }

// log is where a program writes: NAME.log, or NODE-NAME.log.
func (l layout) log(name string) string { return l.path("logs", name+".log") }

// etcd is the directory of the API server's data.
func (l layout) etcd() string { return l.path("etcd") }

// nodeRoot is the root directory of a node.
func (l layout) nodeRoot(name string) string { return l.path("nodes", name, "root") }

// overlay has the upper and work directory of a directory that a node shares with the
// machine and may change for itself.
func (l layout) overlay(node, what string) string { return l.path("nodes", node, "overlay", what) }
