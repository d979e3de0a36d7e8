//go:build kubernetes

package faults

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-csi/holdfast/internal/policy/policytest"
)

// createTemplate makes a dry-run request for an object of policytest.Templates.
func createTemplate(ctx context.Context, client kubernetes.Interface, object policytest.Object) error {
	apps, batch, core, namespace := client.AppsV1(), client.BatchV1(), client.CoreV1(), object.GetNamespace()
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	var err error
	switch o := object.(type) {
	case *appsv1.Deployment:
		_, err = apps.Deployments(namespace).Create(ctx, o, dry)
	case *appsv1.ReplicaSet:
		_, err = apps.ReplicaSets(namespace).Create(ctx, o, dry)
	case *appsv1.StatefulSet:
		_, err = apps.StatefulSets(namespace).Create(ctx, o, dry)
	case *appsv1.DaemonSet:
		_, err = apps.DaemonSets(namespace).Create(ctx, o, dry)
	case *batchv1.Job:
		_, err = batch.Jobs(namespace).Create(ctx, o, dry)
	case *batchv1.CronJob:
		_, err = batch.CronJobs(namespace).Create(ctx, o, dry)
	case *corev1.ReplicationController:
		_, err = core.ReplicationControllers(namespace).Create(ctx, o, dry)
	case *corev1.PodTemplate:
		_, err = core.PodTemplates(namespace).Create(ctx, o, dry)
	default:
		err = fmt.Errorf("%T has no template", object)
	}
	return err
}
