package claim

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Annotations of a PersistentVolume that keep secrets for which the object has
// no field. Both are references; values never leave the Secret.
const (
	DeletionSecretNameAnnotation      = "volume.kubernetes.io/provisioner-deletion-secret-name"
	DeletionSecretNamespaceAnnotation = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
	ModifySecretNameAnnotation        = "volume.kubernetes.io/controller-modify-secret-name"
	ModifySecretNamespaceAnnotation   = "volume.kubernetes.io/controller-modify-secret-namespace"
)

// Tokens are the words that a secret's templates may use in ${…}, with their values.
type Tokens struct {
	Name, Namespace map[string]string
}

// VolumeTokens are the tokens of a StorageClass' secrets. The namespace cannot
// depend on fields that the claim's author chooses freely, so it has fewer.
func VolumeTokens(pvc *corev1.PersistentVolumeClaim, volumeName string) Tokens {
	tokens := Tokens{
		Name:      map[string]string{"pv.name": volumeName, "pvc.name": pvc.Name, "pvc.namespace": pvc.Namespace},
		Namespace: map[string]string{"pv.name": volumeName, "pvc.namespace": pvc.Namespace},
	}
	for key, value := range pvc.Annotations {
		tokens.Name["pvc.annotations['"+key+"']"] = value
	}
	return tokens
}

// Resolve replaces the tokens. The syntax is the shell's ($x and ${x}); a token
// that is not among those given is an error, and so is a result that cannot
// name a Secret.
func (t SecretTemplate) Resolve(tokens Tokens) (*corev1.SecretReference, error) {
	name, err := expand(t.Name, tokens.Name)
	if err != nil {
		return nil, fmt.Errorf("secret name: %w", err)
	}
	namespace, err := expand(t.Namespace, tokens.Namespace)
	if err != nil {
		return nil, fmt.Errorf("secret namespace: %w", err)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return nil, fmt.Errorf("secret name %q, made from %q: %s", name, t.Name, strings.Join(problems, "; "))
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return nil, fmt.Errorf("secret namespace %q, made from %q: %s", namespace, t.Namespace, strings.Join(problems, "; "))
	}
	return &corev1.SecretReference{Name: name, Namespace: namespace}, nil
}

func expand(template string, known map[string]string) (string, error) {
	// os.Expand drops invalid parts, and a name without them is that of another secret.
	for rest := template; ; {
		_, after, found := strings.Cut(rest, "${")
		if !found {
			break
		}
		token, next, closed := strings.Cut(after, "}")
		if !closed || token == "" {
			return "", fmt.Errorf("%q: a token is ${name}", template)
		}
		rest = next
	}
	var unknown []string
	result := os.Expand(template, func(token string) string {
		value, found := known[token]
		if !found {
			unknown = append(unknown, token)
		}
		return value
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("%q: unknown token %q; known are %s",
			template, unknown[0], strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	return result, nil
}

// ResolveSecrets resolves every secret that the class names for one volume.
func (c Class) ResolveSecrets(tokens Tokens) (map[SecretUse]*corev1.SecretReference, error) {
	resolved := map[SecretUse]*corev1.SecretReference{}
	for _, use := range secretUses() {
		template, named := c.Secrets[use]
		if !named {
			continue
		}
		reference, err := template.Resolve(tokens)
		if err != nil {
			return nil, fmt.Errorf("StorageClass %q: %s secret: %w", c.Name, use, err)
		}
		resolved[use] = reference
	}
	return resolved, nil
}

// DeletionSecret returns the secret for DeleteVolume that a PersistentVolume names; nil
// without one. known is false for an object of a version that did not record it.
func DeletionSecret(pv *corev1.PersistentVolume) (reference *corev1.SecretReference, known bool) {
	name, named := pv.Annotations[DeletionSecretNameAnnotation]
	namespace, placed := pv.Annotations[DeletionSecretNamespaceAnnotation]
	if name == "" || namespace == "" {
		return nil, named || placed
	}
	return &corev1.SecretReference{Name: name, Namespace: namespace}, true
}

// TakeSecret removes a pair of keys, "<stem>-name" and "<stem>-namespace", from a class'
// reserved parameters and returns it. It returns the zero template if both are absent. One
// alone, or an empty one, is an error.
func TakeSecret(reserved map[string]string, stem string) (SecretTemplate, error) {
	nameKey, namespaceKey := stem+"-name", stem+"-namespace"
	template, err := secretPair(reserved, nameKey, namespaceKey)
	delete(reserved, nameKey)
	delete(reserved, namespaceKey)
	return template, err
}

func secretPair(parameters map[string]string, nameKey, namespaceKey string) (SecretTemplate, error) {
	name, named := parameters[nameKey]
	namespace, placed := parameters[namespaceKey]
	switch {
	case !named && !placed:
		return SecretTemplate{}, nil
	case name == "" || namespace == "":
		return SecretTemplate{}, fmt.Errorf("parameters[%s] and parameters[%s] must both be given and not be empty",
			nameKey, namespaceKey)
	}
	return SecretTemplate{Name: name, Namespace: namespace}, nil
}

// legacyStem begins the two keys that named a secret before the reserved prefix
// existed; "" for uses that are younger. They stay among the driver's
// parameters, since drivers have come to read them there.
func legacyStem(use SecretUse) string {
	switch use {
	case SecretProvision:
		return "csiProvisionerSecret"
	case SecretControllerPublish:
		return "csiControllerPublishSecret"
	case SecretNodeStage:
		return "csiNodeStageSecret"
	case SecretNodePublish:
		return "csiNodePublishSecret"
	}
	return ""
}

// secretFor finds one use's secret: its own keys, the legacy ones, or none.
func secretFor(use SecretUse, reserved, parameters map[string]string) (SecretTemplate, error) {
	stem := ReservedPrefix + string(use) + "-secret"
	template, err := TakeSecret(reserved, stem)
	legacy := legacyStem(use)
	if err != nil || legacy == "" {
		return template, err
	}
	old, err := secretPair(parameters, legacy+"Name", legacy+"Namespace")
	switch {
	case err != nil:
		return SecretTemplate{}, err
	case old == (SecretTemplate{}):
		return template, nil
	case template != (SecretTemplate{}):
		return SecretTemplate{}, fmt.Errorf("parameters[%s-name] and parameters[%sName] both name a secret; keep the first",
			stem, legacy)
	}
	return old, nil
}

func secretKeys() []string {
	keys := []string{"secret-name", "secret-namespace"}
	for _, use := range secretUses() {
		keys = append(keys, string(use)+"-secret-name", string(use)+"-secret-namespace")
	}
	slices.Sort(keys)
	return keys
}
