// Package ec2emu is an EC2 endpoint that fits on a laptop: the Query protocol
// over package world, the endpoint's own behaviour (latency, throttling,
// faults, authentication), counters and a journal of calls, the instance
// metadata service, and a control interface on a port of its own.
//
// It imports no AWS SDK, so that it can be wrong in other ways than the SDK is.
// docs/reference/ec2emu.md lists every knob, and what is not modelled.
package ec2emu
