package policytest

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is one that can be made in a cluster.
type Object interface {
	metav1.Object
	runtime.Object
}

// Templates are the objects of each kind that has a template of pods, by kind.
func Templates(meta metav1.ObjectMeta, pod corev1.PodSpec) map[string]Object {
	labels := map[string]string{"app": "templates"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod}
	once := *template.DeepCopy()
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	apps := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "apps/v1", Kind: kind} }
	batch := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "batch/v1", Kind: kind} }
	core := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }
	return map[string]Object{
		"Deployment":  &appsv1.Deployment{TypeMeta: apps("Deployment"), ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}},
		"ReplicaSet":  &appsv1.ReplicaSet{TypeMeta: apps("ReplicaSet"), ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}},
		"StatefulSet": &appsv1.StatefulSet{TypeMeta: apps("StatefulSet"), ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template, ServiceName: "x"}},
		"DaemonSet":   &appsv1.DaemonSet{TypeMeta: apps("DaemonSet"), ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}},
		"Job":         &batchv1.Job{TypeMeta: batch("Job"), ObjectMeta: meta, Spec: batchv1.JobSpec{Template: once}},
		"CronJob": &batchv1.CronJob{TypeMeta: batch("CronJob"), ObjectMeta: meta, Spec: batchv1.CronJobSpec{
			Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}},
		}},
		"ReplicationController": &corev1.ReplicationController{
			TypeMeta: core("ReplicationController"), ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: labels, Template: &template},
		},
		"PodTemplate": &corev1.PodTemplate{TypeMeta: core("PodTemplate"), ObjectMeta: meta, Template: template},
	}
}
