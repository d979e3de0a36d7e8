package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// plain returns a request's body as JSON. The project's commands send Kubernetes' own
// kinds as protobuf, whose text begins with "k8s".
func plain(body []byte) ([]byte, error) {
	if !bytes.HasPrefix(body, []byte("k8s\x00")) {
		return body, nil
	}
	decoded, kind, err := serializer.NewCodecFactory(scheme.Scheme).UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode a body of protobuf: %w", err)
	}
	decoded.GetObjectKind().SetGroupVersionKind(*kind)
	return json.Marshal(decoded)
}
