package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
)

// fromNamespace sets a source of any namespace; the core group is "".
func fromNamespace(namespace, group, kind, name string) func(*corev1.PersistentVolumeClaimSpec) {
	return func(spec *corev1.PersistentVolumeClaimSpec) {
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: kind, Name: name, Namespace: &namespace}
	}
}

// needsAGrantOfTheOtherNamespace has a restore and a clone that wait, each for the grant
// of its kind of source.
func needsAGrantOfTheOtherNamespace(c *scene) {
	source := c.neighbour("source")
	source.makeClaim(newClaim("data", "64Mi"))
	source.run(newPod("writer", writeFile("/data/file", "8m")+" && "+idle, withClaim("data")))
	source.waitWritten("writer", "/data/file.sum")
	source.exec("writer", "sync")
	source.makeSnapshot("then", "data")
	source.waitSnapshot("then")

	copies := []struct{ claim, group, kind, source string }{
		{"restored", snapshotv1.GroupName, "VolumeSnapshot", "then"},
		{"cloned", "", "PersistentVolumeClaim", "data"},
	}
	for _, one := range copies {
		c.makeClaim(newClaim(one.claim, "64Mi", fromNamespace(source.namespace, one.group, one.kind, one.source)))
		c.makePod(newPod("reader-"+one.claim, idle, withClaim(one.claim)))
	}
	refusal := fmt.Sprintf("no ReferenceGrant in namespace %q lets claims of namespace %q use the source", source.namespace, c.namespace)
	for _, one := range copies {
		c.waitEvent(one.claim, "ProvisioningFailed", refusal)
		if answer := c.why("pvc/" + one.claim); !strings.Contains(answer, "no ReferenceGrant there lets claims") {
			c.Errorf("the explanation of claim %s does not name the grant:\n%s", one.claim, answer)
		}
	}
	for i, one := range copies {
		for _, waiting := range copies[i:] {
			c.expectPending(waiting.claim)
		}
		source.grant(one.kind, one.group, one.source, c.namespace)
		c.waitReady("reader-" + one.claim)
		c.exec("reader-"+one.claim, checkFile("/"+one.claim+"/file"))
	}

	// The grant precedes the claim.
	c.makeClaim(newClaim("later", "64Mi", fromNamespace(source.namespace, snapshotv1.GroupName, "VolumeSnapshot", "then")))
	c.run(newPod("reader-later", idle, withClaim("later")))
	c.exec("reader-later", checkFile("/later/file"))

	// A claim that is refused does not keep its source: both namespaces are deleted with it.
	c.makeClaim(newClaim("refused", "64Mi", fromNamespace(source.namespace, snapshotv1.GroupName, "VolumeSnapshot", "other")))
	c.makePod(newPod("reader-refused", idle, withClaim("refused")))
	c.waitEvent("refused", "ProvisioningFailed", refusal)
}

// grant lets claims of another namespace use one object of this one.
func (c *scene) grant(kind, group, name, namespace string) {
	c.Helper()
	only := gatewayv1.ObjectName(name)
	body, err := json.Marshal(&gatewayv1.ReferenceGrant{
		TypeMeta:   metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "ReferenceGrant"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: gatewayv1.ReferenceGrantSpec{
			From: []gatewayv1.ReferenceGrantFrom{{Kind: "PersistentVolumeClaim", Namespace: gatewayv1.Namespace(namespace)}},
			To:   []gatewayv1.ReferenceGrantTo{{Group: gatewayv1.Group(group), Kind: gatewayv1.Kind(kind), Name: &only}},
		},
	})
	if err != nil {
		c.Fatal(err)
	}
	request := c.api.CoreV1().RESTClient().Post().
		AbsPath("/apis", gatewayv1.GroupVersion.String(), "namespaces", c.namespace, "referencegrants")
	if err := request.Body(body).SetHeader("Content-Type", "application/json").Do(c.Context()).Error(); err != nil {
		c.Fatal(err)
	}
}

func (c *scene) expectPending(claim string) {
	c.Helper()
	now, err := c.getClaim(claim)
	if err != nil {
		c.Fatal(err)
	}
	if now.Status.Phase != corev1.ClaimPending || now.Spec.VolumeName != "" {
		c.Fatalf("claim %s is %s with volume %q", claim, now.Status.Phase, now.Spec.VolumeName)
	}
}

// why returns the answer of `holdfast why`.
func (c *scene) why(subject string) string {
	c.Helper()
	output, err := c.holdfast("why", subject, "--namespace", c.namespace)
	// Its exit code is 3 or 4 if the object waits.
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() > 2) {
		c.Fatalf("%v: %s", err, output)
	}
	return output
}

// holdfast runs the program of the image as the administrator of the cluster.
func (c *scene) holdfast(arguments ...string) (string, error) {
	arguments = append(arguments, "--kubeconfig", c.cluster.Kubeconfig)
	output, err := exec.CommandContext(c.Context(), filepath.Join(c.deployment.Options.Root, "bin/image/holdfast"), arguments...).CombinedOutput()
	return string(output), err
}
