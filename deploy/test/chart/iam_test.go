package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// policyActions are those of deploy/aws/iam-policy.json.
func policyActions(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../aws/iam-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Statement []struct {
			Sid    string
			Action any
		}
	}
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, statement := range policy.Statement {
		actions, several := statement.Action.([]any)
		if !several {
			actions = []any{statement.Action}
		}
		for _, action := range actions {
			name, _ := action.(string)
			found[strings.TrimPrefix(name, "ec2:")] = true
		}
	}
	return found
}

// TestIAMPolicy_allowsExactlyTheCodesCalls reads the calls of the EC2 client.
func TestIAMPolicy_allowsExactlyTheCodesCalls(t *testing.T) {
	files, err := filepath.Glob("../../../internal/backend/ebs/cloud/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no code of the EC2 client: %v", err)
	}
	called := map[string]bool{}
	input := regexp.MustCompile(`\bec2\.([A-Z][A-Za-z]+)Input\{`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range input.FindAllSubmatch(text, -1) {
			if !strings.HasSuffix(file, "_test.go") {
				called[string(match[1])] = true
			}
		}
	}
	allowed := policyActions(t)
	for _, action := range slices.Sorted(maps.Keys(called)) {
		if !allowed[action] {
			t.Errorf("the code calls %s, which the policy does not allow", action)
		}
	}
	for _, action := range slices.Sorted(maps.Keys(allowed)) {
		if len(called) > 0 && !called[action] {
			t.Errorf("the policy allows %s, which no code calls", action)
		}
	}
}

// What the policy must allow beyond its list of actions, by the forms that AWS's
// managed policy AmazonEBSCSIDriverPolicyV2 has.
func TestIAMPolicy_hasTheFormsOfTheManagedPolicy(t *testing.T) {
	text, err := os.ReadFile("../../aws/iam-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Statement []struct {
			Sid              string
			Action, Resource any
			Condition        map[string]map[string]any
		}
	}
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	deletesMigrated := false
	for _, statement := range policy.Statement {
		resources, err := json.Marshal(statement.Resource)
		if err != nil {
			t.Fatal(err)
		}
		// EC2 gives snapshots an ARN with the account in some of its checks.
		if strings.Contains(string(resources), "::snapshot/") {
			t.Errorf("%s: %s does not match a snapshot's ARN that has an account", statement.Sid, resources)
		}
		if statement.Action == "ec2:DeleteVolume" && statement.Condition["StringLike"]["ec2:ResourceTag/kubernetes.io/created-for/pvc/name"] == "*" {
			deletesMigrated = true
		}
	}
	if !deletesMigrated {
		t.Error("the policy does not allow to delete volumes of the in-tree plugin, which lack the driver's tag")
	}
}
