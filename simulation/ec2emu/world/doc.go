// Package world is Amazon EBS and as much of EC2 as EBS needs, as a state
// machine in memory: volumes, attachments, modifications, snapshots, locks,
// fast restore, tags, instances, zones, quotas and client tokens, with the
// times that transitions take, EC2's validation and its error codes. It knows
// no HTTP: package ec2emu speaks the EC2 Query protocol and calls one method of
// World per action.
//
// What it does is written down as EC2 facts in the project's reference of EBS;
// what those facts leave open is a field of Config, never a constant.
//
// Data is real only when Config.Devices is given: then volumes are files, and
// an attached volume is a block device that an instance's directory shows.
package world
