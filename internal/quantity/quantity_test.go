package quantity

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

func TestParse_boundsItsCost(t *testing.T) {
	for text, want := range map[string]string{
		"10Gi": "10Gi", "1e3": "1e3", "1E18": "1E18", "2E": "2E", "1Ei": "1Ei", "0": "0", "-1": "-1", "500m": "500m",
		"1e1000000000": "", "1e-1000000000": "", "1234567890123456789e999999999": "", "1E99999999999999999999": "", "": "", "e": "", "1e+": "",
		" 1e1000000000 ": "", strings.Repeat("9", 101): "", "0x10": "", "1e51": "",
	} {
		fuzztest.Cost{Bytes: 1 << 20}.Within(t, len(text), func() {
			got, err := Parse(text)
			if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
				t.Errorf("%q is %s, %v; want %q", text, got.String(), err, want)
			}
		})
	}
}

func TestCheckJSON_findsQuantitiesOfAPod(t *testing.T) {
	for text, good := range map[string]bool{
		`{"metadata":{"labels":{"version":"1e1000000000"}}}`:                          true,
		`{"spec":{"containers":[{"resources":{"requests":{"cpu":"1e1000000000"}}}]}}`: false,
		`{"spec":{"containers":[{"resources":{"requests":{"cpu":1e1000000000}}}]}}`:   false,
		`{"spec":{"containers":[{"resources":{"requests":{"cpu":"2"}}}]}}`:            true,
		`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1e1000000000"}}]}}`:            false,
		`{"spec":{"overhead":{"a":"1e1000000000"}}}`:                                  false,
		`{"spec":{"overhead":{"a":"1\u00651000000000"}}}`:                             false,
		`{"spec":{"overhead":{"a":"` + strings.Repeat("9", 200) + `"}}}`:              false,
		`{"spec":{"overhead":{"a":"1e3"}}}`:                                           true,
		`{"spec":[]}`:                                                                 true,
		`{"spec":"x"}`:                                                                true,
		`{`:                                                                           true,
		`null`:                                                                        true,
	} {
		if err := CheckJSON([]byte(text), &corev1.Pod{}); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := CheckJSON([]byte(`{"a":1}`), nil); err != nil {
		t.Error(err)
	}
}

// FuzzParse parses any text, and does with the result what callers do.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"10Gi", "1e1000000000", "1E+18", "-.5Ki", "1234567890123456789e49", "0.000000000000000000001", "\x00", "1e-50"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzztest.Cost{Bytes: 1 << 20}.Within(t, len(text), func() {
			q, err := Parse(text)
			if err != nil {
				return
			}
			_, _ = q.CmpInt64(1), q.Sign()
			_, _ = q.Value(), q.String()
			if again, err := resource.ParseQuantity(q.String()); err != nil || again.Cmp(q) != 0 {
				t.Errorf("%q is %s, and that %s, %v", text, q.String(), again.String(), err)
			}
		})
	})
}
