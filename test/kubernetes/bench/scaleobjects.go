package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// prepareTimeout is for the objects that exist before the measurement.
	prepareTimeout = 10 * time.Minute
	// settleTime is longer than the pauses between the controller manager's writes of a claim.
	settleTime = 5 * time.Second
	// etcdWrites are in one transaction; etcd's limit is 128.
	etcdWrites = 100
	// ageLabel tells the volumes that exist before the measurement from those of the storm.
	ageLabel, earlier, recent = "bench-age", "earlier", "recent"
)

// prepare makes the nodes, the class and the volumes that exist already.
func (sc *scale) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	policy, mode := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingWaitForFirstConsumer
	_, err := sc.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "scale"}, Provisioner: scaleDriver, ReclaimPolicy: &policy, VolumeBindingMode: &mode,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if sc.design.coordinated() {
		if err := sc.applyLabelPolicy(ctx); err != nil {
			return err
		}
	}
	begun := time.Now()
	if err := send(ctx, sc.design.nodes+spareNodes, sc.addNode); err != nil {
		return err
	}
	say("%s: the nodes exist after %v", sc.design, time.Since(begun).Round(time.Second))
	pvc, pv, err := sc.addVolume(ctx)
	if err != nil {
		return fmt.Errorf("the first volume: %w", err)
	}
	if err := sc.copyVolume(ctx, pvc, pv); err != nil {
		return fmt.Errorf("volumes in etcd: %w", err)
	}
	say("%s: %d volumes exist after %v", sc.design, sc.s.objects, time.Since(begun).Round(time.Second))
	return nil
}

// addNode makes the objects of a node on which the kubelet has registered the driver.
func (sc *scale) addNode(ctx context.Context, i int) error {
	name := scaleNode(i)
	node, err := sc.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, scaleNodeKey: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = sc.client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID,
		}}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: scaleDriver, NodeID: name, TopologyKeys: []string{scaleNodeKey}}}},
	}, metav1.CreateOptions{})
	return err
}

// addVolume makes a volume with its claim and returns both as Kubernetes has bound them.
func (sc *scale) addVolume(ctx context.Context) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	claims, volumes := sc.client.CoreV1().PersistentVolumeClaims(namespace), sc.client.CoreV1().PersistentVolumes()
	claim, volume := firstVolume()
	if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return nil, nil, err
	}
	if _, err := volumes.Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		return nil, nil, err
	}
	bound, err := follow(ctx, of(claims), isBound)
	if err != nil {
		return nil, nil, err
	}
	if err := bound.await(ctx, 1); err != nil {
		return nil, nil, err
	}
	for version := ""; ; version = claim.ResourceVersion + " " + volume.ResourceVersion {
		if claim, err = claims.Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
			return nil, nil, err
		}
		if volume, err = volumes.Get(ctx, volume.Name, metav1.GetOptions{}); err != nil {
			return nil, nil, err
		}
		if version == claim.ResourceVersion+" "+volume.ResourceVersion {
			return claim, volume, nil
		}
		// The controller manager still writes, such as the condition that no pod uses the
		// claim. Of the copies it would write it, too.
		if err := pause(ctx, settleTime); err != nil {
			return nil, nil, err
		}
	}
}

// firstVolume returns a volume on the first node and its claim, each of which names the other.
func firstVolume() (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	name, node, class := "first", scaleNode(0), "scale"
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			"volume.kubernetes.io/selected-node":       node,
			"volume.kubernetes.io/storage-provisioner": scaleDriver,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: modes, VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	onNode := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: scaleNodeKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
	}}
	return claim, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": scaleDriver}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: size, StorageClassName: class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: scaleDriver, VolumeHandle: volumeHandle(name, node),
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{onNode}}},
		},
	}
}

// volumeHandle is the ID that package csidriver gives a volume on a node.
func volumeHandle(volume, node string) string { return "id-" + volume + "@" + node }

// copyVolume writes copies of a bound volume to etcd, spread over the nodes. Kubernetes would
// need about ten requests for each. They have the label of their node, as in a cluster that
// has run for a day, except for some.
func (sc *scale) copyVolume(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) (err error) {
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{"unix://" + sc.etcd},
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	objects, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		return errors.New("client-go lacks protobuf")
	}
	encoder := scheme.Codecs.EncoderForVersion(objects.Serializer, corev1.SchemeGroupVersion)
	var batch []clientv3.Op
	for i := range sc.s.objects {
		claim, volume := sc.copyOf(i, pvc, pv)
		for key, object := range map[string]runtime.Object{
			"/registry/persistentvolumeclaims/" + namespace + "/" + claim.Name: claim,
			"/registry/persistentvolumes/" + volume.Name:                       volume,
		} {
			encoded, err := runtime.Encode(encoder, object)
			if err != nil {
				return err
			}
			batch = append(batch, clientv3.OpPut(key, string(encoded)))
		}
		if len(batch) < etcdWrites && i < sc.s.objects-1 {
			continue
		}
		if _, err := client.Txn(ctx).Then(batch...).Commit(); err != nil {
			return err
		}
		batch = batch[:0]
	}
	return nil
}

// copyOf returns the i-th copy of a volume and its claim.
func (sc *scale) copyOf(
	i int, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume,
) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	claim, volume := pvc.DeepCopy(), pv.DeepCopy()
	name, node := fmt.Sprintf("%s-%06d", earlier, i), scaleNode(i%sc.design.nodes)
	for _, object := range []metav1.Object{claim, volume} {
		object.SetName(name)
		object.SetUID(uuid.NewUUID())
		object.SetResourceVersion("") // that of the write
		object.SetLabels(map[string]string{ageLabel: earlier})
		if i >= sc.s.unlabelled {
			object.GetLabels()[nodeLabel] = node
		}
	}
	claim.Spec.VolumeName = name
	claim.Annotations["volume.kubernetes.io/selected-node"] = node
	volume.Spec.ClaimRef.Name, volume.Spec.ClaimRef.UID = name, claim.UID
	volume.Spec.CSI.VolumeHandle = volumeHandle(name, node)
	volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = node
	return claim, volume
}
