// Package limits has the number of EBS volumes that an EC2 instance type can attach, and
// computes how many of them the driver can use. The table has the answers of
// DescribeInstanceTypes in 2026 (ebsInfo.maximumEbsAttachments and attachmentLimitType)
// as rules, so that a node needs no EC2 call.
package limits

import (
	"slices"
	"strings"
)

// Limit is the number of attachments of an instance type. If they are Shared, network
// interfaces use them too; Slots already excludes the primary interface and the instance
// store disks.
type Limit struct {
	Slots  int
	Shared bool
}

// Of returns the limit of an instance type; that of most types, and false,
// if the table lacks the type's family.
func Of(instanceType string) (limit Limit, known bool) {
	family, size, isType := strings.Cut(strings.TrimPrefix(instanceType, "ml."), ".")
	if !isType {
		return Limit{Slots: usual, Shared: true}, false
	}
	if contains(dedicatedFamilies, family) {
		slots, found := dedicated(family, size)
		if !found {
			slots = smallestDedicated
		}
		return Limit{Slots: slots}, found
	}
	if Xen(instanceType) {
		return Limit{Slots: xen}, true
	}
	if slots, found := lookUp(shared(), family, size); found {
		return Limit{Slots: slots, Shared: true}, true
	}
	return Limit{Slots: usual, Shared: true}, contains(usualFamilies, family)
}

// Xen reports whether instances of a type run on the Xen hypervisor, and so see
// volumes as Xen's devices and not as NVMe.
func Xen(instanceType string) bool {
	family, size, _ := strings.Cut(strings.TrimPrefix(instanceType, "ml."), ".")
	return contains(xenFamilies, family) && !strings.HasPrefix(size, "metal")
}

// Limits of types that no rule names, and of those of the Xen hypervisor.
const (
	usual             = 27
	xen               = 39
	smallestDedicated = 32
)

// xenFamilies run on Xen, except for their bare metal sizes.
const xenFamilies = "c1 c3 c4 d2 h1 i2 i3 m1 m2 m3 m4 r3 r4 t1 t2 x1 x1e"

// usualFamilies are those of which every size that no rule names has the usual
// limit; they distinguish a new family from an ordinary one.
const usualFamilies = "a1 c5 c5a c5n c6a c6g c6gn c6i c6in c7g c7gn dl1 f1 g3 g3s g4ad g4dn g5 " +
	"hpc6a hpc6id hpc7g m5 m5a m5n m5zn m6a m6g m6i m6in m7g p2 p3 p3dn r5 r5a r5b r5n r6a r6g r6i r6in r7g " +
	"t3 t3a t4g trn1 trn1n u-3tb1 u-6tb1 u-9tb1 u-12tb1 u-18tb1 u-24tb1 vt1 x2iezn"

// dedicatedFamilies have slots for volumes only, in every size.
const dedicatedFamilies = "c7a c7i c7i-flex c8a c8g c8gb c8gd c8gn c8i c8i-flex c8ib c8id c8in c8ine c9g c9gd " +
	"f2 g6 g6e g6f g7 g7e gr6 gr6f hpc7a hpc8a i7i i7ie i8g i8ge " +
	"m7a m7i m7i-flex m8a m8azn m8g m8gb m8gd m8gn m8i m8i-flex m8ib m8id m8idb m8idn m8in m8ine m9g m9gd " +
	"p4d p4de p5 p5e p5en p6-b200 p6-b300 r7a r7i r7iz r8a r8g r8gb r8gd r8gn r8i r8i-flex r8ib r8id r8idb r8idn r8in " +
	"trn2 u7i-6tb u7i-8tb u7i-12tb u7in-16tb u7in-24tb u7in-32tb x8aedz x8g x8i"

// rule is the limit of some sizes of some families. A size is written without "large";
// "*" are all virtual sizes.
type rule struct {
	slots           int
	families, sizes string
}

// The first rule that fits a type counts.
func lookUp(rules []rule, family, size string) (slots int, found bool) {
	short := size
	if size != "large" {
		short = strings.TrimSuffix(size, "large")
	}
	for _, r := range rules {
		if !contains(r.families, family) {
			continue
		}
		if (r.sizes == "*" && !strings.HasPrefix(size, "metal")) || contains(r.sizes, short) {
			return r.slots, true
		}
	}
	return 0, false
}

// dedicated returns the limit by the size, which is the same for all dedicated families
// except dedicatedExceptions.
func dedicated(family, size string) (slots int, found bool) {
	if slots, found := lookUp(dedicatedExceptions(), family, size); found {
		return slots, true
	}
	return lookUp([]rule{
		{32, family, "medium large x 2x 3x 4x 6x 8x 9x 10x 12x"},
		{48, family, "16x 18x"},
		{64, family, "24x"},
		{88, family, "32x"},
		{128, family, "48x 64x 96x 112x 224x"},
		{39, family, "metal-16xl metal-24xl"},
		{79, family, "metal-32xl metal-48xl metal-96xl"},
	}, family, size)
}

func dedicatedExceptions() []rule {
	const network = "c8ib c8in m8ib m8idb m8idn m8in r8ib r8idb r8idn r8in"
	return []rule{
		{28, "p4d p4de", "24x"},
		{27, "hpc7a", "12x 24x 48x 96x"},
		{27, "hpc8a", "96x"},
		{64, "c8a m8a r8a", "metal-24xl"},
		{64, network + " c8i c8id m8i m8id r8i r8id x8i", "metal-48xl"},
		{64, "m8azn x8aedz", "12x metal-12xl"},
		{64, "p5 p5e p5en p6-b200 p6-b300 trn2", "48x"},
		{78, "c8gb c8gn m8gb m8gn r8gb r8gn", "metal-48xl"},
		{78, network, "metal-96xl"},
		{128, "m8azn x8aedz", "24x"},
		{79, "m8azn x8aedz", "metal-24xl"},
	}
}

// shared are the rules for families whose slots are shared.
func shared() []rule {
	const (
		disks5   = "m5ad m5d m5dn r5ad r5d r5dn"
		disks6   = "c6id m6id m6idn r6id r6idn"
		graviton = "c6gd c7gd m6gd m7gd r6gd r7gd x2gd"
	)
	return []rule{
		{3, "d3", "8x"}, {3, "d3en", "12x"},
		{9, "g5", "48x"},
		{10, "mac2 mac2-m1ultra mac2-m2 mac2-m2pro mac-m3ultra mac-m4max", "metal"},
		{11, "d3en", "8x"}, {11, "inf1", "24x"},
		{15, "d3", "4x"}, {15, "d3en", "6x"},
		{16, "mac1", "metal"}, {17, "p3dn", "24x"},
		{19, "d3en", "4x"}, {19, "dl2q i3en", "24x"}, {19, "i4i", "32x"},
		{21, "d3", "2x"}, {21, "g4ad", "16x"}, {21, "i4i", "24x"},
		{22, "g4dn", "12x"}, {22, "g5", "12x 24x"},
		{23, "c5d", "24x"}, {23, disks6, "24x 32x"}, {23, "d3en", "2x"}, {23, "hpc6id", "32x"},
		{23, "i3en", "12x"}, {23, "i4g i4i im4gn", "16x"}, {23, "inf1 vt1", "6x"}, {23, "is4gen", "8x"},
		{23, disks5, "16x 24x"},
		{24, "d3", "x"}, {24, "g4ad", "8x"}, {24, "i4i", "12x"},
		{25, "c5ad", "4x 8x 12x 16x 24x"}, {25, "c5d", "12x 18x"}, {25, graviton, "12x 16x"},
		{25, disks6, "12x 16x"}, {25, "d3en", "x"}, {25, "g4ad", "x 2x 4x"},
		{25, "g4dn g5", "x 2x 4x 8x 16x"}, {25, "g5g", "16x"}, {25, "i3en", "2x 6x"},
		{25, "i4g i4i im4gn", "8x"}, {25, "is4gen", "4x"}, {25, disks5, "4x 8x 12x"},
		{25, "trn1", "2x"}, {25, "vt1", "3x"}, {25, "x2idn x2iedn", "24x 32x"}, {25, "z1d", "12x"},
		{28, "inf2", "24x 48x"}, {28, "trn1 trn1n", "32x"},
		{26, "c5ad c5d g5g i3en i4g i4i im4gn inf1 inf2 is4gen x2idn x2iedn z1d " + graviton + " " + disks5 + " " + disks6, "*"},
		{31, "a1 c5 c5d c5n c6a c6g c6gd c6i c6id c6in c7g c7gd c7gn g4dn g5g i3en i4i m5 m5d m5dn m5n m5zn " +
			"m6a m6g m6gd m6i m6id m6idn m6in m7g m7gd r5 r5b r5d r5dn r5n r6a r6g r6gd r6i r6id r6idn r6in r7g r7gd " +
			"x2gd x2idn x2iedn x2iezn z1d mac-m4 mac-m4pro", "metal"},
	}
}

func contains(list, word string) bool { return slices.Contains(strings.Fields(list), word) }
