package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"
)

const (
	bridgeName = "cluster" // in the control plane's network namespace
	nodeLink   = "eth0"    // in a node's
)

// plugMachine makes the veth pair between the machine and the network namespace of the
// supervisor. The machine's end is removed with the namespace.
func (r record) plugMachine(supervisor int) error {
	cable := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: r.link()},
		PeerName:      "machine",
		PeerNamespace: netlink.NsPid(supervisor),
	}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("cluster: make network device %s: %w", r.link(), err)
	}
	if err := configure(r.link(), r.Plan.bridged(r.Plan.machine())); err != nil {
		return err
	}
	return route(r.Plan.whole(), r.Plan.controlPlane())
}

// unplugMachine removes the veth pair if the end of the namespace has not removed it yet.
func (r record) unplugMachine() error {
	link, err := netlink.LinkByName(r.link())
	if isNoLink(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster: network device %s: %w", r.link(), err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		if _, now := netlink.LinkByName(r.link()); isNoLink(now) {
			return nil // it went by itself meanwhile
		}
		return fmt.Errorf("cluster: remove network device %s: %w", r.link(), err)
	}
	return nil
}

func isNoLink(err error) bool {
	var none netlink.LinkNotFoundError
	return errors.As(err, &none)
}

// makeBridge builds the network inside the supervisor's namespace.
func (r record) makeBridge() error {
	if err := forward(); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName, HardwareAddr: hardwareAddress(0)}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("cluster: make the bridge: %w", err)
	}
	if err := configure(bridgeName, r.Plan.bridged(r.Plan.controlPlane())); err != nil {
		return err
	}
	if err := configure("lo", netip.PrefixFrom(r.Plan.service(), 32).String()); err != nil {
		return err
	}
	return bridged("machine")
}

// plugNode makes the veth pair from the bridge to a node's namespace, and the route to
// the node's pods.
func (r record) plugNode(i int, pid int) error {
	name := nodePort(i)
	// After the crash of a node its veth pair may exist for a moment.
	if old, err := netlink.LinkByName(name); err == nil {
		if err := netlink.LinkDel(old); err != nil && !isNoLink(err) {
			return fmt.Errorf("cluster: remove the old network device of node %d: %w", i, err)
		}
	}
	cable := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name},
		PeerName:  nodeLink, PeerNamespace: netlink.NsPid(pid), PeerHardwareAddr: hardwareAddress(i),
	}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("cluster: make the network device of node %d: %w", i, err)
	}
	if err := bridged(name); err != nil {
		return err
	}
	return route(r.Plan.pods(i), r.Plan.node(i))
}

// plugNodeMachine makes the tap device on the bridge from which the machine of a node gets
// its network, and the route to the node's pods.
func (r record) plugNodeMachine(i int) error {
	name := nodePort(i)
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("cluster: make the network device of the machine of node %d: %w", i, err)
	}
	if err := bridged(name); err != nil {
		return err
	}
	return route(r.Plan.pods(i), r.Plan.node(i))
}

// nodePort is the bridge's end of a node's network device.
func nodePort(i int) string { return "node-" + strconv.Itoa(i) }

// makeNodeNetwork configures a node's own end.
func (r record) makeNodeNetwork(i int) error {
	if err := forward(); err != nil {
		return err
	}
	if err := configure("lo", ""); err != nil {
		return err
	}
	if err := configure(nodeLink, r.Plan.bridged(r.Plan.node(i))); err != nil {
		return err
	}
	return route(netip.PrefixFrom(netip.IPv4Unspecified(), 0), r.Plan.controlPlane())
}

// hardwareAddress is that of a node, or of the bridge as 0. A bridge without an address
// takes a port's, another one whenever ports change. A restarted node has its old one,
// so that neighbour caches stay valid.
func hardwareAddress(i int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 'h', 'o', 'l', 'd', byte(i)}
}

// configure sets a device's address, if any, and turns it on.
func configure(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("cluster: network device %s: %w", name, err)
	}
	if address != "" {
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return fmt.Errorf("cluster: give %s the address %s: %w", name, address, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("cluster: turn on %s: %w", name, err)
	}
	return nil
}

// bridged makes a device a port of the bridge.
func bridged(name string) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("cluster: the bridge: %w", err)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("cluster: network device %s: %w", name, err)
	}
	if err := netlink.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("cluster: put %s on the bridge: %w", name, err)
	}
	return configure(name, "")
}

// route sends a network to a gateway; a route that is there is replaced.
func route(to netip.Prefix, via netip.Addr) error {
	_, network, err := net.ParseCIDR(to.String())
	if err != nil {
		return err
	}
	if err := netlink.RouteReplace(&netlink.Route{Dst: network, Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("cluster: route %s to %s: %w", to, via, err)
	}
	return nil
}

// forward lets the network namespace pass on packets; the machine's own
// setting is another one.
func forward() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("cluster: turn on forwarding: %w", err)
	}
	return nil
}
