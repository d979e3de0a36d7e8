// Package spelling finds the word that was probably meant.
package spelling

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// longest bounds the words that are compared: the cost is the product of the lengths.
const longest = 100

// Nearest returns the known word that is nearest to word, "" if none is near: a quarter
// of its letters, and one, may differ, and three at most. Upper and lower case are the
// same. Of several that are equally near, it is the first in the order of the alphabet.
func Nearest(word string, known []string) string {
	best, least := "", 4
	if len(word) > longest {
		return ""
	}
	for _, name := range slices.Sorted(slices.Values(known)) {
		far := levenshtein.ComputeDistance(strings.ToLower(word), strings.ToLower(name))
		if far < least && far <= len(name)/4+1 && far < len(name) {
			best, least = name, far
		}
	}
	return best
}
