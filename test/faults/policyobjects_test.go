//go:build kubernetes

package faults

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/holdfast-csi/holdfast/internal/policy/policytest"
)

const (
	oldVolume = "pipe-old"
	// mark labels the volumes of these tests: a webhook that is down on purpose must not
	// match the volumes of other tests.
	mark = "holdfast.dev/pipe-test"
)

// createTemplates makes a dry-run request for each kind with a pod template.
func (w *pipeWorld) createTemplates(t *testing.T, pod corev1.PodSpec) map[string]error {
	t.Helper()
	failed := map[string]error{}
	for kind, object := range policytest.Templates(metav1.ObjectMeta{Name: "plugin", Namespace: w.namespace}, pod) {
		failed[kind] = createTemplate(w.ctx, w.core, object)
	}
	return failed
}

func (w *pipeWorld) volume(name, path string, local bool) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mark: ""}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "none",
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
		},
	}
	if local {
		volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
		volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "x", Operator: corev1.NodeSelectorOpExists}},
		}}}}
	}
	return volume
}

func (w *pipeWorld) createVolume(path string, local bool) error {
	_, err := w.core.CoreV1().PersistentVolumes().Create(w.ctx, w.volume("pipe-volume", path, local), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// keepOldVolume creates a volume that the rule rejects, before the rule is installed.
func (w *pipeWorld) keepOldVolume(t *testing.T) {
	t.Helper()
	volume := w.volume(oldVolume, canonicalPipe, false)
	volume.Finalizers = []string{"holdfast.dev/test"}
	if _, err := w.core.CoreV1().PersistentVolumes().Create(w.ctx, volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// manifest returns a shipped manifest with the changes that its head comment requests.
func (w *pipeWorld) manifest(t *testing.T, name string) string {
	t.Helper()
	return strings.ReplaceAll(shipped(t, name), "in []", `in ["`+w.namespace+"/"+allowed+`"]`)
}

func (w *pipeWorld) installPolicy(t *testing.T) (remove func()) {
	t.Helper()
	w.keepOldVolume(t)
	installed := installPolicies(w.ctx, t, w.core, w.manifest(t, "pipe-policy.yaml"), nil, nil, nil)
	if made := installed.made; made["ValidatingAdmissionPolicy"] != 5 || made["ValidatingAdmissionPolicyBinding"] != 5 {
		t.Fatalf("the manifest has %v", made)
	}
	return func() {
		installed.remove()
		w.waitUntilAdmitted(t)
	}
}

// waitUntilAdmitted waits until the API server applies the rule no more.
func (w *pipeWorld) waitUntilAdmitted(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(100 * time.Millisecond) {
		failed := w.createTemplates(t, w.pod(w.namespace, other, canonicalPipe).Spec)
		err := errors.Join(w.create(t, w.pod(w.namespace, other, canonicalPipe)), w.createVolume(canonicalPipe, false), failed["CronJob"], failed["Job"], failed["PodTemplate"])
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

type hook struct {
	process *process
	remove  func()
}

// installWebhook starts the command and configures it as a webhook of the API server.
func (w *pipeWorld) installWebhook(t *testing.T) hook {
	t.Helper()
	w.keepOldVolume(t)
	address := freeAddress(t)
	certificate, key, authority := selfSigned(t, address)
	process := holdfast(t, "policy", "webhook", "--listen="+address, "--cert-file="+certificate, "--key-file="+key, "--allow="+w.namespace+"/"+allowed, "--log-level=debug")
	var object admissionv1.ValidatingWebhookConfiguration
	for _, document := range documents(t, w.manifest(t, "pipe-webhook.yaml")) {
		var kind metav1.TypeMeta
		if decode(t, document, &kind); kind.Kind == "ValidatingWebhookConfiguration" {
			decode(t, document, &object)
		}
	}
	if len(object.Webhooks) != 1 {
		t.Fatalf("the manifest has %d webhooks", len(object.Webhooks))
	}
	only := &object.Webhooks[0]
	only.ClientConfig = admissionv1.WebhookClientConfig{URL: new("https://" + address + *only.ClientConfig.Service.Path), CABundle: authority}
	exempt := only.NamespaceSelector.MatchExpressions[0]
	exempt.Values = []string{w.exempt}
	// Other tests share the API server.
	only.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{exempt, {
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{w.namespace, w.elsewhere, w.exempt},
	}}
	volumes := *only.DeepCopy()
	volumes.Name, volumes.ObjectSelector = "volumes."+only.Name, &metav1.LabelSelector{MatchLabels: map[string]string{mark: ""}}
	isVolumes := func(rule admissionv1.RuleWithOperations) bool { return rule.Resources[0] == "persistentvolumes" }
	only.Rules = slices.DeleteFunc(only.Rules, isVolumes)
	volumes.Rules = slices.DeleteFunc(volumes.Rules, func(rule admissionv1.RuleWithOperations) bool { return !isVolumes(rule) })
	object.Webhooks = append(object.Webhooks, volumes)
	client := w.core.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := client.Create(w.ctx, &object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return hook{process, func() {
		if err := client.Delete(context.WithoutCancel(w.ctx), object.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}}
}

// selfSigned makes a self-signed certificate for an address.
func selfSigned(t *testing.T, address string) (certificateFile, keyFile string, authority []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{netip.MustParseAddrPort(address).Addr().AsSlice()}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	dir := t.TempDir()
	certificateFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	err = errors.Join(os.WriteFile(certificateFile, authority, 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return certificateFile, keyFile, authority
}

// freeAddress returns an address of this machine that the API server can reach from
// its network namespace.
func freeAddress(t *testing.T) string {
	t.Helper()
	server, err := url.Parse(shared.Host)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := net.Dial("tcp", net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443")))
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(connection.LocalAddr().String())
	if err := errors.Join(err, connection.Close()); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func documents(t *testing.T, text string) [][]byte {
	t.Helper()
	var all [][]byte
	for reader := yaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(text))); ; {
		buffer := make([]byte, len(text))
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, buffer[:n])
	}
}

func decode(t *testing.T, document []byte, into any) {
	t.Helper()
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(document), 4096).Decode(into); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}
