package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// sizes are bytes of storage, for one node after the other. They implement flag.Value.
type sizes []int64

func (s *sizes) String() string { return "" }

// Set reads quantities that are separated by commas.
func (s *sizes) Set(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		size, err := resource.ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		*s = append(*s, size.Value())
	}
	return nil
}

// of returns the size of a node, by the number in its name.
func (s *sizes) of(node string) int64 {
	var number int
	if _, err := fmt.Sscanf(node, "scale-%d", &number); err != nil || len(*s) == 0 {
		return 1 << 40
	}
	return (*s)[number%len(*s)]
}

// room is the account of the storage of one node.
type room struct {
	node    string
	mu      sync.Mutex
	left    int64            // bytes
	volumes map[string]int64 // sizes by volume ID
}

func newRoom(size int64, node string) *room {
	return &room{node: node, left: size, volumes: map[string]int64{}}
}

// account updates the room before a call of the node's driver.
func (r *room) account(request any) error {
	switch request := request.(type) {
	case *csi.CreateVolumeRequest:
		// As csidriver names the volumes of an Instance.
		return r.take("id-"+request.GetName()+"@"+r.node, request.GetCapacityRange().GetRequiredBytes())
	case *csi.DeleteVolumeRequest:
		r.free(request.GetVolumeId())
	}
	return nil
}

// take subtracts a new volume. It returns RESOURCE_EXHAUSTED if the node lacks the room.
func (r *room) take(id string, size int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, exists := r.volumes[id]; exists {
		return nil
	}
	if size > r.left {
		return csidriver.Fail(codes.ResourceExhausted, fmt.Sprintf("volume %s needs %d bytes, and %d are left", id, size, r.left))
	}
	r.left -= size
	r.volumes[id] = size
	return nil
}

func (r *room) free(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += r.volumes[id]
	delete(r.volumes, id)
}

func (r *room) answer(*csi.GetCapacityRequest) *csi.GetCapacityResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	return csidriver.Room(r.left, -1)
}
