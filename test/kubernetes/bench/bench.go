package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	snapshot "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
)

// namespace is the namespace of the storms' objects.
const namespace = "bench"

// bench is a cluster to measure on.
type bench struct {
	s         settings
	dir       string
	cluster   *cluster.Cluster
	config    *rest.Config
	client    kubernetes.Interface
	snapshots snapshot.Interface
}

// on runs measurements on a new cluster.
func on(ctx context.Context, s settings, measure func(context.Context, *bench) ([]row, error)) (rows []row, err error) {
	dir, err := os.MkdirTemp(s.scratch, "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	policy, err := writeAuditPolicy(dir)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Up(ctx, cluster.Options{
		Dir: filepath.Join(dir, "cluster"), Binaries: s.binaries, Attached: true,
		Images: []string{filepath.Join(s.binaries, "images.tar")},
		Flags:  map[string][]string{"kube-apiserver": auditFlags(dir, policy)},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		down := c.Down()
		if err == nil && down == nil { // else the report needs the logs
			down = os.RemoveAll(dir)
		} else {
			say("logs and state are left in %s", dir)
		}
		err = errors.Join(err, down)
	}()
	b := &bench{s: s, dir: dir, cluster: c}
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	return measure(ctx, b)
}

func (b *bench) connect(ctx context.Context) (err error) {
	if b.config, err = clientcmd.BuildConfigFromFlags("", b.cluster.Kubeconfig); err != nil {
		return err
	}
	b.config.QPS = -1
	custom := rest.CopyConfig(b.config)
	b.config.ContentType = runtime.ContentTypeProtobuf
	b.config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if b.client, err = kubernetes.NewForConfig(b.config); err != nil {
		return err
	}
	if b.snapshots, err = snapshot.NewForConfig(custom); err != nil {
		return err
	}
	_, err = b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	return err
}

// accountName is how a system is called in the audit log.
func accountName(name string) string { return "system:serviceaccount:" + namespace + ":" + name }

// system prepares a system: an account, by which its requests are counted, a class, and
// its driver on all nodes.
func (b *bench) system(ctx context.Context, name string, commands [][]string) (*system, error) {
	m := &system{name: name, driver: name + ".simulated.holdfast.dev", dir: filepath.Join(b.dir, name), commands: commands}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return nil, err
	}
	policy, mode := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	_, err := b.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: m.driver, ReclaimPolicy: &policy, VolumeBindingMode: &mode,
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	for _, node := range b.cluster.Nodes {
		if err := b.addToNode(ctx, node, m.driver); err != nil {
			return nil, err
		}
	}
	m.config, err = b.account(ctx, m)
	return m, err
}

// addToNode adds the driver to a CSINode, as the kubelet does.
func (b *bench) addToNode(ctx context.Context, node, driver string) error {
	nodes := b.client.StorageV1().CSINodes()
	for {
		of, err := nodes.Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		of.Spec.Drivers = append(of.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: node})
		if _, err = nodes.Update(ctx, of, metav1.UpdateOptions{}); !isConflict(err) {
			return err
		}
	}
}

// account makes a service account that may do everything, and its kubeconfig.
func (b *bench) account(ctx context.Context, m *system) (string, error) {
	name := m.name
	accounts := b.client.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	_, err = b.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	path := filepath.Join(m.dir, "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: b.config.Host, CertificateAuthorityData: b.config.CAData}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench", Namespace: namespace}
	config.CurrentContext = "bench"
	return path, clientcmd.WriteToFile(*config, path)
}

// systems are Holdfast's, with the defaults it is shipped with, and that of the
// alternative if there is one.
func (b *bench) systems(ctx context.Context) (ours, other *system, err error) {
	ours, err = b.system(ctx, "holdfast", [][]string{{b.s.holdfast, "sidecars", "--namespace=" + namespace}})
	if err != nil || len(b.s.alternatives) == 0 {
		return ours, nil, err
	}
	var commands [][]string
	for _, line := range b.s.alternatives {
		commands = append(commands, strings.Fields(line))
	}
	other, err = b.system(ctx, "alternative", commands)
	return ours, other, err
}

// writeAuditPolicy makes the API server log only the writes of the systems, so that the
// log does not distort the measurement.
func writeAuditPolicy(dir string) (string, error) {
	rule := func(level string, resources ...any) map[string]any {
		return map[string]any{
			"level": level, "users": []string{accountName("holdfast"), accountName("alternative")}, "resources": resources,
			"verbs": []string{"create", "update", "patch", "delete", "deletecollection"}, "omitStages": []string{"RequestReceived"},
		}
	}
	policy := map[string]any{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
		"rules": []any{
			rule("RequestResponse", map[string]any{"resources": []string{"configmaps"}}), // of intents the bytes count, too
			rule("Metadata"),
			map[string]any{"level": "None"},
		},
	}
	text, err := json.Marshal(policy) // which is YAML, too
	if err != nil {
		return "", fmt.Errorf("audit policy: %w", err)
	}
	path := filepath.Join(dir, "audit-policy.yaml")
	return path, os.WriteFile(path, text, 0o644)
}

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }

func auditFlags(dir, policy string) []string {
	return []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog(dir),
		"--audit-log-mode=batch", "--audit-log-batch-max-wait=1s", "--audit-log-maxsize=10000",
	}
}
