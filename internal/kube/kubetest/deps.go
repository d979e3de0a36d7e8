package kubetest

import (
	_ "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	_ "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/fake"
	_ "gopkg.in/evanphx/json-patch.v4"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/client-go/rest"
	_ "k8s.io/client-go/tools/cache"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/client-go/tools/leaderelection"
	_ "k8s.io/client-go/tools/record"
	_ "k8s.io/client-go/util/workqueue"
	_ "k8s.io/utils/clock/testing"
	_ "k8s.io/utils/ptr"
)
