package world

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// InstanceType has the limits of an instance type for volumes.
type InstanceType struct {
	Name string `json:"name"`
	// Attachments is the limit. If it is Shared, network interfaces except the primary
	// one count too.
	Attachments int  `json:"attachments"`
	Shared      bool `json:"shared,omitempty"`
	// Cards is how many EBS cards there are; 0 is one.
	Cards int32 `json:"cards,omitempty"`
	// Xen types have no NVMe controllers: a volume appears under its name.
	Xen bool `json:"xen,omitempty"`
	// BlockExpress types run io2 volumes as Block Express.
	BlockExpress bool  `json:"blockExpress,omitempty"`
	BareMetal    bool  `json:"bareMetal,omitempty"`
	Interfaces   int32 `json:"interfaces,omitempty"` // most network interfaces; 0 is 3
	Disks        int32 `json:"disks,omitempty"`      // instance store
}

func (t InstanceType) cards() int32 { return max(t.Cards, 1) }

// builtInTypes are examples of each kind, with limits from DescribeInstanceTypes.
func builtInTypes() map[string]InstanceType {
	shared := func(name string, limit int) InstanceType {
		return InstanceType{Name: name, Attachments: limit, Shared: true}
	}
	list := []InstanceType{
		shared("t3.micro", 27), shared("t3.medium", 27), shared("t3.large", 27),
		shared("m5.large", 27), shared("m5.xlarge", 27), shared("m5.2xlarge", 27), shared("m5.24xlarge", 27),
		shared("c5.large", 27), shared("r5.large", 27), shared("m6i.large", 27), shared("m6g.large", 27),
		shared("g5.48xlarge", 9), shared("d3.8xlarge", 3), shared("i3en.24xlarge", 19),
		{Name: "m5d.large", Attachments: 26, Shared: true, Disks: 1},
		{Name: "m5.metal", Attachments: 31, Shared: true, BareMetal: true},
		{Name: "r5b.large", Attachments: 27, Shared: true, BlockExpress: true},
		{Name: "c7i.large", Attachments: 32, BlockExpress: true},
		{Name: "m7i.large", Attachments: 32, BlockExpress: true},
		{Name: "m7i.16xlarge", Attachments: 48, BlockExpress: true, Interfaces: 15},
		{Name: "m7i.24xlarge", Attachments: 64, BlockExpress: true, Interfaces: 15},
		{Name: "m7i.48xlarge", Attachments: 128, BlockExpress: true, Interfaces: 15},
		{Name: "m7i.metal-48xl", Attachments: 79, BlockExpress: true, BareMetal: true, Interfaces: 15},
		{Name: "c8gb.48xlarge", Attachments: 128, BlockExpress: true, Cards: 2, Interfaces: 15},
		{Name: "m4.large", Attachments: 39, Xen: true, Interfaces: 2},
		{Name: "t2.micro", Attachments: 27, Xen: true, Shared: true, Interfaces: 2},
		{Name: "c4.large", Attachments: 39, Xen: true},
	}
	types := map[string]InstanceType{}
	for _, t := range list {
		types[t.Name] = t
	}
	return types
}

// typeOf is the type of an instance; an unknown one has 27 shared attachments.
func (w *World) typeOf(i *instance) InstanceType {
	if t, ok := w.instanceTypes[i.Type]; ok {
		return t
	}
	return InstanceType{Name: i.Type, Attachments: 27, Shared: true}
}

// KnowsType reports whether DescribeInstanceTypes lists the type.
func (w *World) KnowsType(name string) bool {
	_, ok := w.instanceTypes[name]
	return ok
}

type typeRow struct {
	order int64
	InstanceTypeInfo
}

func typeFilters() filterTable[typeRow] {
	text := func(value func(*typeRow) string) func(*typeRow) []string {
		return func(t *typeRow) []string { return []string{value(t)} }
	}
	return filterTable[typeRow]{
		"instance-type":                  text(func(t *typeRow) string { return t.InstanceType }),
		"hypervisor":                     text(func(t *typeRow) string { return t.Hypervisor }),
		"bare-metal":                     text(func(t *typeRow) string { return strconv.FormatBool(t.BareMetal) }),
		"ebs-info.nvme-support":          text(func(t *typeRow) string { return t.EBSInfo.NVMeSupport }),
		"instance-storage-supported":     text(func(t *typeRow) string { return strconv.FormatBool(t.InstanceStorageSupported) }),
		"ebs-info.attachment-limit-type": text(func(t *typeRow) string { return t.EBSInfo.AttachmentLimitType }),
	}
}

// DescribeInstanceTypes lists instance types; an unknown name fails the call.
func (w *World) DescribeInstanceTypes(r *DescribeInstanceTypesRequest) (_ *DescribeInstanceTypesResponse, err error) {
	defer w.read(&err)()
	if refusal := pageWithIDs(r.InstanceTypes, r.Page, "instanceTypeSet"); refusal != nil {
		return nil, refusal
	}
	matches, refusal := compileFilters(r.Filters, typeFilters(), nil)
	if refusal != nil {
		return nil, refusal
	}
	p, refusal := w.openPage(r.Page, 100, []any{"types", r.InstanceTypes, r.Filters})
	if refusal != nil {
		return nil, refusal
	}
	unknown := slices.DeleteFunc(slices.Clone(r.InstanceTypes), w.KnowsType)
	if len(unknown) > 0 {
		return nil, refuse("InvalidInstanceType", "The following supplied instance types do not exist: [%s]",
			strings.Join(unknown, ", "))
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	var all []*typeRow
	for n, name := range slices.Sorted(maps.Keys(w.instanceTypes)) {
		if selected(r.InstanceTypes, name) {
			all = append(all, &typeRow{int64(n + 1), describeType(w.instanceTypes[name])})
		}
	}
	chosen, next := paginate(p, all, func(t *typeRow) int64 { return t.order }, matches)
	answer := &DescribeInstanceTypesResponse{NextToken: next}
	for _, t := range chosen {
		answer.InstanceTypes = append(answer.InstanceTypes, t.InstanceTypeInfo)
	}
	return answer, nil
}

func describeType(t InstanceType) InstanceTypeInfo {
	limit, cards := int32(t.Attachments), t.cards()
	info := InstanceTypeInfo{
		InstanceType: t.Name, BareMetal: t.BareMetal, Hypervisor: "nitro",
		EBSInfo: EBSInfo{
			AttachmentLimitType: "dedicated", MaximumEBSAttachments: &limit, MaximumEBSCards: &cards,
			OptimizedInfo: &EBSOptimizedInfo{BaselineIOPS: 3600, MaximumIOPS: 18750},
			NVMeSupport:   "required", EncryptionSupport: "supported",
		},
		NetworkInfo: NetworkInfo{MaximumNetworkInterfaces: max(t.Interfaces, 3)},
	}
	if t.Shared {
		info.EBSInfo.AttachmentLimitType = "shared"
	}
	if t.Xen {
		info.Hypervisor, info.EBSInfo.NVMeSupport = "xen", "unsupported"
	}
	if t.BareMetal || strings.Contains(t.Name, ".metal") {
		info.Hypervisor = ""
	}
	for index := int32(0); cards > 1 && index < cards; index++ {
		info.EBSInfo.Cards = append(info.EBSInfo.Cards,
			EBSCard{EBSCardIndex: index, BaselineIOPS: 3600, MaximumIOPS: 18750})
	}
	if t.Disks > 0 {
		info.InstanceStorageSupported = true
		info.InstanceStorageInfo = &InstanceStorageInfo{
			TotalSizeInGB: 75 * int64(t.Disks), NVMeSupport: "required",
			Disks: []InstanceDisk{{Count: t.Disks, SizeInGB: 75, Type: "ssd"}},
		}
	}
	return info
}
