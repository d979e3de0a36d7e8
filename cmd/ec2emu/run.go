package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/holdfast-csi/holdfast/internal/logformat"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/disk"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// run serves until ctx ends, then detaches the devices.
func (s *settings) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	level := slog.LevelInfo
	if s.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(logformat.Text(stderr, slog.HandlerOptions{Level: level}))
	server, err := s.server(log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if err := s.populate(server, log); err != nil {
		return err
	}
	endpoints, err := s.endpoints(ctx, server, log)
	if err != nil {
		return err
	}
	s.greet(stdout, endpoints)
	return serveAll(ctx, endpoints)
}

func (s *settings) server(log *slog.Logger) (*ec2emu.Server, error) {
	config := world.Config{
		Knobs: s.knobs.World, Region: s.region, AccountID: s.account, Seed: s.seed, StateDir: s.state, Logger: log,
	}
	if s.root != "" {
		devices, err := disk.Open(s.root)
		if err != nil {
			return nil, fmt.Errorf("--root=%s: %w", s.root, err)
		}
		config.Devices = devices
	}
	return ec2emu.New(ec2emu.Options{World: config, Knobs: s.knobs.Endpoint, Seed: s.seed, Journal: s.journal,
		Logger: log})
}

// populate starts the instances that a saved world lacks, without boot time, and adds
// faults.
func (s *settings) populate(server *ec2emu.Server, log *slog.Logger) error {
	booted := s.knobs.World
	booted.Times.Start = world.Takes{}
	if err := server.World().SetKnobs(booted); err != nil {
		return err
	}
	for _, one := range s.instances {
		if _, err := server.World().Info(one.id); err == nil {
			continue
		}
		if !server.World().KnowsType(one.kind) {
			log.Warn("an instance type that the emulator does not know: its limit is 27, shared", "type", one.kind)
		}
		spec := world.InstanceSpec{ID: one.id, Type: one.kind, Zone: one.zone, Interfaces: one.interfaces}
		if _, err := server.World().RunInstance(spec); err != nil {
			return fmt.Errorf("--instance=%s: %w", one.id, err)
		}
	}
	if err := server.World().SetKnobs(s.knobs.World); err != nil {
		return err
	}
	for _, f := range s.faults {
		if _, err := server.AddFault(f); err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
	}
	for _, f := range s.volumeFaults {
		if _, err := server.World().AddFault(f); err != nil {
			return fmt.Errorf("--volume-fault: %w", err)
		}
	}
	return nil
}
