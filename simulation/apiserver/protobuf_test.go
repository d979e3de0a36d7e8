package apiserver

import (
	"bytes"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestPlain_protobufBecomesJSON(t *testing.T) {
	sent := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"b": "c"},
	}
	var body bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(sent, &body); err != nil {
		t.Fatal(err)
	}
	text, err := plain(body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.ConfigMap
	if err := json.Unmarshal(text, &got); err != nil || got.Kind != "ConfigMap" || got.Name != "a" || got.Data["b"] != "c" {
		t.Errorf("%s: %v", text, err)
	}
	unchanged := []byte(`{"kind":"ConfigMap"}`)
	if text, err := plain(unchanged); err != nil || !bytes.Equal(text, unchanged) {
		t.Errorf("JSON became %s: %v", text, err)
	}
	if _, err := plain([]byte("k8s\x00nonsense")); err == nil {
		t.Error("a damaged body is accepted")
	}
}
