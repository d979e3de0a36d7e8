package mount

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// contextOption is SELinux's mount option that gives all files of a filesystem one label.
const contextOption = "context"

// LabelsFiles reports whether the kernel labels files: selinuxfs is mounted then.
func LabelsFiles() bool {
	_, err := os.Stat("/sys/fs/selinux/enforce")
	return err == nil
}

// Context returns the SELinux label that the flags request for all files, "" for none.
func (f Flags) Context() string {
	for _, option := range f.Options {
		if option.Key == contextOption {
			return option.Value
		}
	}
	return ""
}

// ContextOf returns the SELinux label that all files of a mounted filesystem have, "" if
// each has its own. The kernel shows it among the options of the filesystem, in quotes if
// it has commas (security/selinux/hooks.c, show_sid).
func ContextOf(entry *mountinfo.Info) string {
	for _, option := range splitQuoted(entry.VFSOptions) {
		if value, ok := strings.CutPrefix(option, contextOption+"="); ok {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// SameContext reports whether two SELinux labels are equal to the kernel, which shows the
// categories of a level sorted and in ranges: s0:c3,c2,c1 is s0:c1.c3.
func SameContext(a, b string) bool {
	if a == b {
		return true
	}
	one, two := strings.SplitN(a, ":", 4), strings.SplitN(b, ":", 4)
	return len(one) == 4 && len(two) == 4 && slices.Equal(one[:3], two[:3]) && sameRange(one[3], two[3])
}

// CanonicalContext returns an SELinux label as the kernel shows it: the categories of its
// levels sorted, and three or more that follow each other as a range
// (security/selinux/ss/mls.c, mls_sid_to_context). It returns other texts unchanged.
func CanonicalContext(label string) string {
	parts := strings.SplitN(label, ":", 4)
	if len(parts) != 4 {
		return label
	}
	low, high, isRange := strings.Cut(parts[3], "-")
	low, okLow := canonicalLevel(low)
	high, okHigh := canonicalLevel(high)
	if !okLow || !okHigh {
		return label
	}
	if isRange && high != low {
		low += "-" + high
	}
	return strings.Join(append(parts[:3], low), ":")
}

func canonicalLevel(level string) (canonical string, ok bool) {
	sensitivity, list, _ := strings.Cut(level, ":")
	numbers, ok := categories(list)
	if !ok || len(numbers) == 0 {
		return sensitivity, ok
	}
	var shown []string
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		switch first, last := "c"+strconv.Itoa(numbers[i]), "c"+strconv.Itoa(numbers[end]); end - i {
		case 0:
			shown = append(shown, first)
		case 1:
			shown = append(shown, first, last)
		default:
			shown = append(shown, first+"."+last)
		}
		i = end + 1
	}
	return sensitivity + ":" + strings.Join(shown, ","), true
}

// sameRange compares LOW or LOW-HIGH, where LOW alone is the range from LOW to LOW.
func sameRange(a, b string) bool {
	lowA, highA, rangeA := strings.Cut(a, "-")
	lowB, highB, rangeB := strings.Cut(b, "-")
	if !rangeA {
		highA = lowA
	}
	if !rangeB {
		highB = lowB
	}
	return sameLevel(lowA, lowB) && sameLevel(highA, highB)
}

func sameLevel(a, b string) bool {
	sensitivityA, listA, _ := strings.Cut(a, ":")
	sensitivityB, listB, _ := strings.Cut(b, ":")
	categoriesA, okA := categories(listA)
	categoriesB, okB := categories(listB)
	return sensitivityA == sensitivityB && okA && okB && slices.Equal(categoriesA, categoriesB)
}

// mostCategories is the number of categories in the kernel's reach (c0 to c1023 in all
// policies); it bounds the work for a hostile range.
const mostCategories = 1024

// categories expands a list such as c1,c5.c7, sorted; ok is false for other texts.
func categories(list string) (numbers []int, ok bool) {
	if list == "" {
		return nil, true
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, ".")
		if !isRange {
			last = first
		}
		from, okFrom := category(first)
		to, okTo := category(last)
		if !okFrom || !okTo {
			return nil, false
		}
		for ; from <= to; from++ {
			numbers = append(numbers, from)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), true
}

func category(text string) (int, bool) {
	digits, ok := strings.CutPrefix(text, "c")
	number, err := strconv.Atoi(digits)
	return number, ok && err == nil && number >= 0 && number < mostCategories
}
