package cli

import (
	"cmp"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/host"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	winverify "github.com/holdfast-csi/holdfast/internal/csiproxy/verify"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32/native"
)

// openMachine adds this machine and a host whose only directory is that of the checks.
func openMachine(o *winverify.Options) (done func(), err error) {
	rules, err := paths.New(cmp.Or(o.Dir, defaultKubeletDir))
	if err != nil {
		return nil, err
	}
	o.Machine = native.New(native.Options{})
	machine, err := host.New(host.Options{Machine: o.Machine, Rules: rules})
	if err != nil {
		return nil, err
	}
	o.Host = machine.API()
	return machine.Close, nil
}
