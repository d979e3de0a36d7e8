package cluster

import (
	"fmt"
	"net"
	"net/netip"
)

// plan is the cluster's /16 network, 10.X.0.0, of which no other part of the
// machine has an address:
//
//	10.X.0.0/24    the bridge: 1 is the control plane, 10+i is node i, 254 the machine
//	10.X.4i.0/22   pods of node i, from 1
//	10.X.255.0/24  services. The first, "kubernetes", is an address of the control
//	               plane itself, where the API server listens on 443: pods reach it
//	               without kube-proxy and without any packet filter.
type plan struct {
	Second byte `json:"second"`
}

func (p plan) address(third, fourth byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, p.Second, third, fourth})
}

func (p plan) whole() netip.Prefix         { return netip.PrefixFrom(p.address(0, 0), 16) }
func (p plan) services() netip.Prefix      { return netip.PrefixFrom(p.address(255, 0), 24) }
func (p plan) controlPlane() netip.Addr    { return p.address(0, 1) }
func (p plan) machine() netip.Addr         { return p.address(0, 254) }
func (p plan) service() netip.Addr         { return p.address(255, 1) }
func (p plan) node(i int) netip.Addr       { return p.address(0, byte(10+i)) }
func (p plan) pods(i int) netip.Prefix     { return netip.PrefixFrom(p.address(byte(4*i), 0), 22) }
func (p plan) bridged(a netip.Addr) string { return netip.PrefixFrom(a, 24).String() }

// server is the API server's URL, from the machine and from the nodes.
func (p plan) server() string { return "https://" + p.controlPlane().String() }

// choosePlan takes the first network that overlaps with no address in use.
func choosePlan(used []netip.Prefix) (plan, error) {
	for second := byte(233); second >= 100; second-- {
		p := plan{Second: second}
		if !overlapsAny(p.whole(), used) {
			return p, nil
		}
	}
	return plan{}, fmt.Errorf("cluster: no network of 10.100.0.0/16 to 10.233.0.0/16 is free on this machine")
}

func overlapsAny(p netip.Prefix, used []netip.Prefix) bool {
	for _, u := range used {
		if p.Overlaps(u) {
			return true
		}
	}
	return false
}

// usedPrefixes are the networks of the machine's own interfaces.
func usedPrefixes() ([]netip.Prefix, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("cluster: list the machine's addresses: %w", err)
	}
	var used []netip.Prefix
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			used = append(used, p.Masked())
		}
	}
	return used, nil
}
