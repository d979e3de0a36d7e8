//go:build kubernetes

package faults

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// shipped returns one of the shipped manifests.
func shipped(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/manifests", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// client creates and deletes objects of a kind.
type client[T any] interface {
	Create(ctx context.Context, object *T, options metav1.CreateOptions) (*T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// installation is the admission policies and bindings of a manifest.
type installation struct {
	t    *testing.T
	made map[string]int // by kind
	undo []func() error
}

// install applies change to a document's object and creates it.
func install[T any](ctx context.Context, i *installation, objects client[T], document []byte, change func(*T) (name string)) {
	i.t.Helper()
	object := new(T)
	decode(i.t, document, object)
	name := change(object)
	if _, err := objects.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		i.t.Fatal(err)
	}
	i.undo = append(i.undo, func() error {
		return objects.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
	})
}

// installPolicies creates all objects of a manifest; the changes may be nil.
func installPolicies(ctx context.Context, t *testing.T, core kubernetes.Interface, manifest string,
	policy func(*admissionv1.ValidatingAdmissionPolicySpec), binding func(*admissionv1.ValidatingAdmissionPolicyBindingSpec), mutating func(*admissionv1.MutatingAdmissionPolicySpec),
) *installation {
	t.Helper()
	i, registered := &installation{t: t, made: map[string]int{}}, core.AdmissionregistrationV1()
	for _, document := range documents(t, manifest) {
		var kind metav1.TypeMeta
		decode(t, document, &kind)
		i.made[kind.Kind]++
		switch kind.Kind {
		case "ValidatingAdmissionPolicy":
			install(ctx, i, registered.ValidatingAdmissionPolicies(), document, func(o *admissionv1.ValidatingAdmissionPolicy) string {
				changed(policy, &o.Spec)
				return o.Name
			})
		case "ValidatingAdmissionPolicyBinding":
			install(ctx, i, registered.ValidatingAdmissionPolicyBindings(), document, func(o *admissionv1.ValidatingAdmissionPolicyBinding) string {
				changed(binding, &o.Spec)
				return o.Name
			})
		case "MutatingAdmissionPolicy":
			install(ctx, i, registered.MutatingAdmissionPolicies(), document, func(o *admissionv1.MutatingAdmissionPolicy) string {
				changed(mutating, &o.Spec)
				return o.Name
			})
		case "MutatingAdmissionPolicyBinding":
			install(ctx, i, registered.MutatingAdmissionPolicyBindings(), document, func(o *admissionv1.MutatingAdmissionPolicyBinding) string { return o.Name })
		}
	}
	return i
}

func changed[T any](by func(*T), object *T) {
	if by != nil {
		by(object)
	}
}

// remove deletes the created objects in reverse order.
func (i *installation) remove() {
	i.t.Helper()
	for _, step := range slices.Backward(i.undo) {
		if err := step(); err != nil {
			i.t.Error(err)
		}
	}
}
