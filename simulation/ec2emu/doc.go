// Package ec2emu is an emulator of the EC2 endpoint: the Query protocol for package world,
// the behaviour of the endpoint (latency, throttling, faults, authentication), counters
// and a journal of calls, the instance metadata service, and a control interface on a
// separate port.
//
// It imports no AWS SDK, so that a fault of the SDK is not repeated in it.
// docs/reference/ec2emu.md lists the knobs and the limits of the model.
package ec2emu
