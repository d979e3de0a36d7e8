package claim

import "testing"

func TestAttacherFinalizer_isThatOfTheExternalAttacher(t *testing.T) {
	for driver, want := range map[string]string{
		"ebs.csi.aws.com":  "external-attacher/ebs-csi-aws-com",
		"local.holdfast_1": "external-attacher/local-holdfast-1",
		"ends-in-dot.":     "external-attacher/ends-in-dot-X",
	} {
		if got := AttacherFinalizer(driver); got != want {
			t.Errorf("%s: %s, want %s", driver, got, want)
		}
	}
}
