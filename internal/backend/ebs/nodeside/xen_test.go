package nodeside

import "testing"

func TestSlot_ofNamesAndOfXensNumbers(t *testing.T) {
	tests := []struct {
		name, node string
		want       slot
	}{
		{"/dev/xvdf", "device/vbd/51792", slot{5, 0}},
		{"/dev/sdf", "device/vbd/2128", slot{5, 0}},
		{"/dev/xvda", "device/vbd/51712", slot{0, 0}},
		{"/dev/sda1", "device/vbd/2049", slot{0, 1}},
		{"/dev/xvdaa", "device/vbd/268442112", slot{26, 0}},
		{"xvdba", "device/vbd/268448768", slot{52, 0}},
		{"/dev/xvddx", "device/vbd/268467968", slot{127, 0}},
	}
	for _, test := range tests {
		byName, isName := slotOfName(test.name)
		byNode, isDisk := slotOfNode(test.node)
		if !isName || !isDisk || byName != test.want || byNode != test.want {
			t.Errorf("%s is %+v, %s is %+v; want %+v", test.name, byName, test.node, byNode, test.want)
		}
	}
	for _, name := range []string{"", "/dev/nvme1n1", "/dev/xvdaaa", "/dev/sd", "/dev/../sda", "local-ebs://dev/xvdf"} {
		if s, isName := slotOfName(name); isName {
			t.Errorf("%q is %+v", name, s)
		}
	}
	for _, node := range []string{"", "device/vif/0", "device/vbd/x", "device/vbd/768", "device/vbd/-1"} {
		if s, isDisk := slotOfNode(node); isDisk {
			t.Errorf("%q is %+v", node, s)
		}
	}
}
