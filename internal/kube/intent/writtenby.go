package intent

import corev1 "k8s.io/api/core/v1"

// Selector selects the ConfigMaps that have intents.
const Selector = storeLabel

// WrittenBy reports whether a ConfigMap has the intents of a driver's process on a node.
func WrittenBy(object *corev1.ConfigMap, driver, node string) bool {
	return object.Annotations[driverAnnotation] == driver && object.Annotations[nodeAnnotation] == node
}
