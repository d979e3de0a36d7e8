// Package world is Amazon EBS and as much of EC2 as EBS needs, as a state
// machine in memory: volumes, attachments, modifications, snapshots, locks,
// fast restore, tags, instances, zones, quotas and client tokens, with the
// times that transitions take, EC2's validation and its error codes. It has no HTTP:
// package ec2emu implements the EC2 Query protocol and calls one method of World per
// action.
//
// Its behaviour follows EC2's documentation. Behaviour that the documentation does not
// define is a field of Config.
//
// Volumes have data only if Config.Devices is set: then they are files, and an attached
// volume is a block device in the directory of its instance.
package world
