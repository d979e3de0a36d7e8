package host

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

const driverName = "d.example"

// storage is what a driver manages: its volumes, and what it did on this machine. It
// outlives the driver's processes.
type storage struct {
	w       *world
	driver  *csidriver.Driver
	calls   *client.InProcess
	attach  bool // volumes are attached
	stage   bool // volumes are staged
	ledger  map[string]*ledger
	pending map[string]bool // objects with an operation that continues after its answer
	// full: the storage has no room.
	full bool
}

// ledger is what a driver did with one volume on this machine.
type ledger struct {
	attached  map[string]bool // node IDs
	staging   string          // path; "" if it is not staged
	published map[string]bool // paths
	// givenUp: an administrator gave up a pod with the volume. The host skips calls that the driver
	// does not answer, and the driver may keep that use while the volume gets others.
	givenUp bool
}

func (s *storage) of(volume string) *ledger {
	if s.ledger[volume] == nil {
		s.ledger[volume] = &ledger{attached: map[string]bool{}, published: map[string]bool{}}
	}
	return s.ledger[volume]
}

// newStorage chooses the traits of the driver.
func newStorage(w *world) *storage {
	d := csidriver.New(driverName)
	s := &storage{w: w, driver: d, ledger: map[string]*ledger{}, pending: map[string]bool{}}
	s.attach, s.stage = w.lab.Choose(3) > 0, w.lab.Choose(4) != 1
	if s.attach {
		d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	if !s.stage {
		d.Node = slices.DeleteFunc(d.Node, func(c csi.NodeServiceCapability_RPC_Type) bool {
			return c == csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
		})
	}
	d.Node = append(d.Node, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	d.Forgetful = w.lab.Choose(3) == 1
	d.Creation.Strict, d.Snapshots.Strict = w.lab.Choose(2) == 1, w.lab.Choose(2) == 1
	d.Snapshots.UnreadyAnswers = w.lab.Choose(3)
	d.Changes.NoNodeExpansion, d.Changes.Offline = w.lab.Choose(3) == 1, s.attach && w.lab.Choose(4) == 1
	d.Publish = func(r *csi.NodePublishVolumeRequest) error {
		return w.machine.mount(r.GetTargetPath(), r.GetVolumeId(), r.GetVolumeCapability().GetBlock() != nil)
	}
	d.Unpublish = func(r *csi.NodeUnpublishVolumeRequest) error {
		w.vacated(r.GetTargetPath())
		return w.machine.unmount(r.GetTargetPath(), true)
	}
	s.calls = client.NewInProcess(s.intercept)
	csi.RegisterIdentityServer(s.calls, d)
	csi.RegisterControllerServer(s.calls, d)
	csi.RegisterGroupControllerServer(s.calls, d)
	csi.RegisterNodeServer(s.calls, d)
	return s
}

// intercept adds what the driver does to the mounts when it stages a volume, and keeps the
// ledger.
func (s *storage) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if r, ok := request.(*csi.NodeUnstageVolumeRequest); ok {
		if err := s.w.machine.unmount(r.GetStagingTargetPath(), false); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	answer, err := s.driver.Intercept(ctx, request, info, handler)
	if err != nil {
		return nil, err
	}
	switch r := request.(type) {
	case *csi.ControllerPublishVolumeRequest:
		s.of(r.GetVolumeId()).attached[r.GetNodeId()] = true
	case *csi.ControllerUnpublishVolumeRequest:
		delete(s.of(r.GetVolumeId()).attached, r.GetNodeId())
	case *csi.NodeStageVolumeRequest:
		s.of(r.GetVolumeId()).staging = r.GetStagingTargetPath()
		if r.GetVolumeCapability().GetBlock() == nil {
			err = s.w.machine.mount(r.GetStagingTargetPath(), r.GetVolumeId(), false)
		}
	case *csi.NodeUnstageVolumeRequest:
		s.of(r.GetVolumeId()).staging = ""
	case *csi.NodePublishVolumeRequest:
		s.of(r.GetVolumeId()).published[r.GetTargetPath()] = true
	case *csi.NodeUnpublishVolumeRequest:
		delete(s.of(r.GetVolumeId()).published, r.GetTargetPath())
	}
	return answer, err
}

// reboot ends what the driver did on this machine. With detach, the attachments end too.
func (s *storage) reboot(detach bool) {
	s.driver.Reboot(detach)
	for _, one := range s.ledger {
		one.staging, one.published = "", map[string]bool{}
		if detach {
			one.attached = map[string]bool{}
		}
	}
	s.pending = map[string]bool{}
}

// endGivenUp is what an administrator does who gave up a pod: once it is gone, he ends what the
// driver still has published for it, since the driver refuses other calls for the volume until then.
func (s *storage) endGivenUp() {
	for _, id := range slices.Sorted(maps.Keys(s.ledger)) {
		known := s.ledger[id]
		for _, path := range slices.Sorted(maps.Keys(known.published)) {
			if !known.givenUp || s.w.objects.hasPodAt(path) {
				continue
			}
			request := &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: path}
			answer := &csi.NodeUnpublishVolumeResponse{}
			if err := s.calls.Invoke(context.Background(), csi.Node_NodeUnpublishVolume_FullMethodName, request, answer); err != nil {
				s.w.lab.Note("an administrator cannot end the use of %s at %s: %v", id, path, err)
			}
		}
	}
}

// asks reports whether a call changes nothing.
func asks(rpc string) bool {
	return strings.HasPrefix(rpc, "Get") || strings.HasPrefix(rpc, "List") || strings.Contains(rpc, "Capabilities") ||
		rpc == "Probe" || rpc == "NodeGetInfo" || strings.HasPrefix(rpc, "NodeGet")
}

// objectOf is the object of a request: a volume, a snapshot, or the name of a new one.
func objectOf(request any) string {
	switch r := request.(type) {
	case *csi.CreateSnapshotRequest:
		return r.GetName()
	case interface{ GetVolumeId() string }:
		return r.GetVolumeId()
	case interface{ GetSnapshotId() string }:
		return r.GetSnapshotId()
	case interface{ GetName() string }:
		return r.GetName()
	}
	return ""
}

// placeOf tells the calls for one volume apart.
func placeOf(root string, request any) string {
	if r, ok := request.(interface{ GetTargetPath() string }); ok {
		return " " + strings.TrimPrefix(r.GetTargetPath(), root)
	}
	return ""
}

// The faults of calls. A fault is a gRPC code before the effect, or "lost" and a code after
// it; "late" has its effect after the answer DEADLINE_EXCEEDED; "hangs" has none and never
// answers; "twice" has its effect two times.
func faultsOf(rpc string) []string {
	common := []string{"Unavailable", "Aborted", "Internal", "DeadlineExceeded", "lost Unavailable", "lost DeadlineExceeded",
		"lost Aborted", "lost Canceled", "late", "hangs", "twice"}
	switch {
	case strings.HasPrefix(rpc, "Create"):
		return append(common, "ResourceExhausted", "Unknown", "PermissionDenied", "FailedPrecondition", "AlreadyExists")
	case rpc == "NodeStageVolume", rpc == "NodePublishVolume", rpc == "ControllerPublishVolume":
		return append(common, "ResourceExhausted", "FailedPrecondition", "PermissionDenied", "lost Internal")
	case strings.Contains(rpc, "Expand"), strings.Contains(rpc, "Modify"):
		return append(common, "ResourceExhausted", "OutOfRange", "Unknown")
	}
	return append(common, "Unknown")
}

// codeOf is the code of a name.
func codeOf(name string) codes.Code {
	for code := codes.Code(0); code <= codes.Unauthenticated; code++ {
		if code.String() == name {
			return code
		}
	}
	return codes.Unknown
}

// call is one call of the host that changes something.
type call struct {
	s        *storage
	instance *instance
	host     *hostProcess
	rpc      string
	method   string
	object   string
	request  proto.Message
	answer   any
}

// do executes the call with a fault.
func (c *call) do(ctx context.Context, fault string) error {
	if c.s.pending[c.object] {
		return status.Errorf(codes.Aborted, "an operation on %s is pending", c.object)
	}
	if strings.HasPrefix(c.rpc, "Create") && c.s.full {
		return status.Error(codes.ResourceExhausted, "the storage is full")
	}
	words := "the driver fails" + secretsIn(c.request)
	lost, after := strings.CutPrefix(fault, "lost ")
	switch {
	case fault == "":
		return c.effect()
	case after:
		if err := c.effect(); err != nil {
			return err
		}
		return status.Error(codeOf(lost), words)
	case fault == "twice":
		if err := c.effect(); err != nil {
			return err
		}
		return c.effect()
	case fault == "hangs":
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	case fault == "late":
		c.later()
		return status.Error(codes.DeadlineExceeded, words)
	}
	return status.Error(codeOf(fault), words)
}

// effect is the call itself. It happens at once.
func (c *call) effect() error {
	return c.s.calls.Invoke(context.Background(), c.method, c.request, c.answer)
}

// later has the effect at a later step, unless the driver's process ends before.
func (c *call) later() {
	c.s.pending[c.object] = true
	request := proto.Clone(c.request)
	c.s.w.background.Go(func() {
		_, err := c.instance.process.Pass(c.instance.ctx, lab.Step{Kind: "late " + c.rpc, Object: c.object})
		delete(c.s.pending, c.object)
		if err != nil {
			return
		}
		if err := c.s.calls.Invoke(context.Background(), c.method, request, newAnswer(c.answer)); err != nil {
			c.s.w.lab.Note("late %s %s: %v", c.rpc, c.object, status.Code(err))
		}
	})
}

func newAnswer(like any) any {
	message, _ := like.(proto.Message)
	return message.ProtoReflect().New().Interface()
}

// secretsIn is what a careless driver says of the command that failed.
func secretsIn(request any) string {
	r, ok := request.(interface{ GetSecrets() map[string]string })
	if !ok || len(r.GetSecrets()) == 0 {
		return ""
	}
	var words []string
	for _, key := range slices.Sorted(maps.Keys(r.GetSecrets())) {
		words = append(words, key+"="+r.GetSecrets()[key])
	}
	return ": mount -o " + strings.Join(words, ",") + " exited with 32"
}

// link is a connection of the host to the instances of a driver.
type link struct {
	host     *hostProcess
	endpoint string
	options  client.Options
}

// Invoke implements grpc.ClientConnInterface.
func (l *link) Invoke(ctx context.Context, method string, request, answer any, _ ...grpc.CallOption) error {
	rpc := path.Base(method)
	inst := l.route()
	if inst == nil {
		return status.Error(codes.Unavailable, "connection refused")
	}
	s := l.host.w.storage
	if asks(rpc) {
		return s.calls.Invoke(context.Background(), method, request, answer)
	}
	message, _ := request.(proto.Message)
	c := &call{s: s, instance: inst, host: l.host, rpc: rpc, method: method, object: objectOf(request), request: message, answer: answer}
	place := c.object + placeOf(l.host.w.machine.root, request)
	fault, err := l.host.process.Pass(ctx, lab.Step{Kind: "call " + rpc, Object: place, Faults: faultsOf(rpc)})
	if err != nil {
		return statusOf(err)
	}
	if inst.process.Dead() {
		return status.Error(codes.Unavailable, "the connection is closed")
	}
	l.host.w.called(c)
	outcome := c.do(ctx, fault)
	if _, err := l.host.process.Pass(ctx, lab.Step{Kind: "answer " + rpc, Object: place}); err != nil {
		return statusOf(err)
	}
	if inst.process.Dead() {
		return status.Error(codes.Unavailable, "the connection was closed")
	}
	return outcome
}

// route is the instance that gets a call: that of the endpoint, or the one that took over.
func (l *link) route() *instance {
	if inst := l.host.w.instances[l.endpoint]; inst != nil {
		return inst
	}
	if l.options.Fallback == nil {
		return nil
	}
	return l.host.w.instances[l.options.Fallback()]
}

func statusOf(err error) error {
	if converted := status.FromContextError(err); converted.Code() != codes.Unknown {
		return converted.Err()
	}
	return status.Error(codes.Canceled, err.Error())
}

// NewStream implements grpc.ClientConnInterface.
func (l *link) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

// called checks the order of calls (CSI spec 1.13, "Volume Lifecycle").
func (w *world) called(c *call) {
	known := c.s.of(c.object)
	switch r := c.request.(type) {
	case *csi.DeleteVolumeRequest:
		if known.isInUse() && !known.givenUp {
			w.violated("DeleteVolume of %s, which is %s", c.object, known)
		}
		w.mayDeleteVolume(c.object)
	case *csi.DeleteSnapshotRequest:
		w.mayDeleteSnapshot(c.object)
	case *csi.ControllerPublishVolumeRequest:
		if others := len(known.attached); others > 0 && !known.attached[r.GetNodeId()] {
			w.violated("ControllerPublishVolume of %s to %s, which is %s", c.object, r.GetNodeId(), known)
		}
	case *csi.ControllerUnpublishVolumeRequest:
		if known.isPublished() || known.staging != "" && !known.givenUp {
			w.violated("ControllerUnpublishVolume of %s, which is %s", c.object, known)
		}
	case *csi.NodeStageVolumeRequest:
		if c.s.attach && len(known.attached) == 0 {
			w.violated("NodeStageVolume of %s, which is not attached", c.object)
		}
		if known.staging != "" && known.staging != r.GetStagingTargetPath() {
			w.violated("NodeStageVolume of %s at a second path", c.object)
		}
	case *csi.NodePublishVolumeRequest:
		w.mayPublish(c, r, known)
	case *csi.NodeUnpublishVolumeRequest:
		w.mayUnpublish(r.GetTargetPath())
	case *csi.NodeUnstageVolumeRequest:
		if known.isPublished() {
			w.violated("NodeUnstageVolume of %s, which is %s", c.object, known)
		}
		if known.staging != "" && known.staging != r.GetStagingTargetPath() {
			w.violated("NodeUnstageVolume of %s at %s; it is staged at %s", c.object, r.GetStagingTargetPath(), known.staging)
		}
	}
}

// isPublished reports whether the volume is published, other than for a pod that was given up.
func (l *ledger) isPublished() bool { return len(l.published) > 0 && !l.givenUp }

func (l *ledger) isInUse() bool {
	return l.staging != "" || len(l.published) > 0 || len(l.attached) > 0
}

func (l *ledger) String() string {
	return fmt.Sprintf("attached to %v, staged at %q, published at %v",
		slices.Sorted(maps.Keys(l.attached)), l.staging, slices.Sorted(maps.Keys(l.published)))
}

func (w *world) mayPublish(c *call, r *csi.NodePublishVolumeRequest, known *ledger) {
	inline := r.GetVolumeContext()[claim.Ephemeral] == "true"
	switch {
	case inline:
		return
	case c.s.attach && len(known.attached) == 0:
		w.violated("NodePublishVolume of %s, which is not attached", c.object)
	case c.s.stage && known.staging == "":
		w.violated("NodePublishVolume of %s, which is not staged", c.object)
	case c.s.stage && known.staging != r.GetStagingTargetPath():
		w.violated("NodePublishVolume of %s from %s; it is staged at %s", c.object, r.GetStagingTargetPath(), known.staging)
	}
	mode := r.GetVolumeCapability().GetAccessMode().GetMode()
	if mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER || known.givenUp {
		return
	}
	for path := range known.published {
		if path != r.GetTargetPath() {
			w.violated("NodePublishVolume of %s for a second pod, mode %s, which is %s", c.object, mode, known)
			return
		}
	}
}

// mayUnpublish: no volume is taken from a container that runs.
func (w *world) mayUnpublish(path string) {
	for _, c := range w.running() {
		if slices.Contains(c.paths, path) {
			w.violated("NodeUnpublishVolume at %s, which container %s of pod %s uses", path, c.name, c.uid)
		}
	}
}
