package cluster

import (
	"hash/maphash"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// shared remembers some of the last words and maps by their hashes, so that equal ones
// become one. It is bounded: rare ones displace each other and are not shared. The zero value is
// ready; it is not safe for concurrent use.
type shared struct {
	seed  maphash.Seed
	begun bool
	// Powers of two are indexed by a hash's low bits.
	recentWords [1024]string
	recentMaps  [256]map[string]string
	recentSizes map[resource.Quantity]corev1.ResourceList
}

// maximumSizes bounds recentSizes; clusters have a handful of sizes.
const maximumSizes = 256

func (s *shared) hash(word string) uint64 {
	if !s.begun {
		s.seed, s.begun = maphash.MakeSeed(), true
	}
	return maphash.String(s.seed, word)
}

// word makes a string one that was seen before, if it was.
func (s *shared) word(text *string) {
	if *text == "" {
		return
	}
	slot := &s.recentWords[s.hash(*text)%uint64(len(s.recentWords))]
	if *slot != *text {
		*slot = *text
	}
	*text = *slot
}

func (s *shared) pointed(text *string) { pointed(s, text) }

type sharer interface{ word(text *string) }

// word is the same for the named string types of the API.
func word[S ~string](s sharer, text *S) {
	plain := string(*text)
	s.word(&plain)
	*text = S(plain)
}

func pointed[S ~string](s sharer, text *S) {
	if text != nil {
		word(s, text)
	}
}

func (s *shared) modes(modes []corev1.PersistentVolumeAccessMode) {
	for i := range modes {
		word(s, &modes[i])
	}
}

// words makes a map one that was seen before with the same content, or at least
// its keys and values. An empty map becomes none.
func (s *shared) words(content *map[string]string) {
	if len(*content) == 0 {
		*content = nil
		return
	}
	var sum uint64 // in any order
	for key, value := range *content {
		sum += s.hash(key) ^ 3*s.hash(value)
	}
	slot := &s.recentMaps[sum%uint64(len(s.recentMaps))]
	if !maps.Equal(*slot, *content) {
		own := make(map[string]string, len(*content))
		for key, value := range *content {
			s.word(&key)
			s.word(&value)
			own[key] = value
		}
		*slot = own
	}
	*content = *slot
}

// sizes shares the lists that name one size of storage and nothing else, as
// nearly all do. A list is a map, and takes 700 bytes however short it is.
func (s *shared) sizes(list *corev1.ResourceList) {
	size, names := (*list)[corev1.ResourceStorage]
	if !names || len(*list) != 1 {
		return
	}
	known, found := s.recentSizes[size]
	if !found {
		if s.recentSizes == nil || len(s.recentSizes) >= maximumSizes {
			s.recentSizes = map[resource.Quantity]corev1.ResourceList{}
		}
		known = *list
		s.recentSizes[size] = known
	}
	*list = known
}
