package cluster

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Target is the cluster of a user's command line, as kubectl's flags name it.
type Target struct {
	Kubeconfig string // file; "" means the files of $KUBECONFIG, or ~/.kube/config
	Context    string // "" means the current one
}

// Load returns the configuration, and the namespace of the context: "default" if that
// has none.
func (t Target) Load() (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = t.Kubeconfig
	deferred := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: t.Context})
	if config, err = deferred.ClientConfig(); err == nil {
		namespace, _, err = deferred.Namespace()
	}
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig %s: %w", t, err)
	}
	return config, namespace, nil
}

func (t Target) String() string {
	name := t.Kubeconfig
	if name == "" {
		name = "of $KUBECONFIG or ~/.kube/config"
	}
	if t.Context != "" {
		name += ", context " + t.Context
	}
	return name
}
