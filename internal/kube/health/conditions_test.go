package health

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	degraded     = csi.VolumeHealthErrorType_DEGRADED
	inaccessible = csi.VolumeHealthErrorType_INACCESSIBLE
	dataLoss     = csi.VolumeHealthErrorType_DATA_LOSS
)

type entries = []*csi.VolumeHealth_VolumeHealthEntry

func TestConditionsOf(t *testing.T) {
	cases := []struct {
		name    string
		entries entries
		want    []corev1.VolumeHealthCondition
	}{
		{"none means healthy", nil, nil},
		{"each status has its name", entries{
			csidriver.Problem(dataLoss, "Torn", "c"), csidriver.Problem(inaccessible, "Gone", "b"), csidriver.Problem(degraded, "Slow", "a"),
		}, []corev1.VolumeHealthCondition{
			{Status: "DataLoss", Reason: "Torn", Message: "c"},
			{Status: "Inaccessible", Reason: "Gone", Message: "b"},
			{Status: "Degraded", Reason: "Slow", Message: "a"},
		}},
		{"one (status, reason) stays one, whatever the order", entries{
			csidriver.Problem(degraded, "Slow", "second"), csidriver.Problem(degraded, "Slow", "first"),
		}, []corev1.VolumeHealthCondition{{Status: "Degraded", Reason: "Slow", Message: "first"}}},
		{"an unknown status is not healthy", entries{csidriver.Problem(17, "MultipathLoss", "one path left")},
			[]corev1.VolumeHealthCondition{{
				Status: "Degraded", Reason: "UnknownStatus17MultipathLoss",
				Message: "status 17 of the driver (MultipathLoss) is not known to this version of Holdfast: one path left",
			}}},
		{"status 0 is not healthy either", entries{csidriver.Problem(0, "Odd", "")},
			[]corev1.VolumeHealthCondition{{
				Status: "Degraded", Reason: "UnknownStatus0Odd",
				Message: "status 0 of the driver (Odd) is not known to this version of Holdfast",
			}}},
		{"a missing reason has a name", entries{csidriver.Problem(degraded, "", "m")},
			[]corev1.VolumeHealthCondition{{Status: "Degraded", Reason: "Unspecified", Message: "m"}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if difference := cmp.Diff(c.want, conditionsOf(c.entries)); difference != "" {
				t.Errorf("(-want +got)\n%s", difference)
			}
		})
	}
}

func TestConditionsOf_areValidForTheAPIServer(t *testing.T) {
	reasons := []string{
		"Fine", "a", "two words", "9Lives", "_leading", ",", ":::", "trailing:", "größe", "\xff\xfe", "a/b-c.d",
		strings.Repeat("Long", 100), strings.Repeat("é", 300), strings.Repeat("x", 255) + ":", strings.Repeat("9", 256),
	}
	for _, reason := range reasons {
		for _, kind := range []csi.VolumeHealthErrorType{degraded, -5, 1 << 30} {
			got := conditionsOf(entries{csidriver.Problem(kind, reason, strings.Repeat("ü", 600))})[0]
			if len(got.Reason) == 0 || len(got.Reason) > 256 || len(metav1validation.IsValidConditionReason(got.Reason)) > 0 {
				t.Errorf("reason %q becomes %q", reason, got.Reason)
			}
			if len(got.Message) > 1024 || !strings.Contains(got.Message, "ü") {
				t.Errorf("a message of 1200 bytes has %d", len(got.Message))
			}
		}
	}
}

func TestConditionsOf_keepsTheSixteenMostSevere(t *testing.T) {
	var many entries
	for _, letter := range "abcdefghijklmnopqrst" {
		many = append(many, csidriver.Problem(degraded, string(letter), ""))
	}
	many = append(many, csidriver.Problem(dataLoss, "z", ""))
	got := conditionsOf(many)
	if len(got) != 16 || got[0].Status != corev1.VolumeHealthDataLoss {
		t.Errorf("of 21 there are %d left, the first is %v", len(got), got[0])
	}
	slices.Reverse(many)
	if difference := cmp.Diff(got, conditionsOf(many)); difference != "" {
		t.Errorf("the order of the driver matters (-one +reverse)\n%s", difference)
	}
}

func FuzzReasonOf(f *testing.F) {
	for _, seed := range []string{"", "A", "9", ":", "a b", "\x00", "ÄÖ", "_", "__", "a:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, reason string) {
		got := reasonOf(reason)
		if len(got) == 0 || len(got) > 256 || len(metav1validation.IsValidConditionReason(got)) > 0 {
			t.Errorf("%q becomes %q, which the API server refuses", reason, got)
		}
		if again := reasonOf(got); again != got {
			t.Errorf("%q becomes %q, which becomes %q", reason, got, again)
		}
	})
}
