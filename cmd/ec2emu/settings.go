package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// settings are the parsed command line.
type settings struct {
	address, control, metadata string
	region, account            string
	instances                  []instance
	root, state                string
	seed                       uint64
	journal                    int
	verbose                    bool
	knobs                      ec2emu.AllKnobs
	faults                     []ec2emu.Fault
	volumeFaults               []world.Fault
}

// instance is the value of one --instance.
type instance struct {
	id, kind, zone string
	interfaces     int
	network        netip.Prefix // that its metadata requests come from
}

// raw holds the flags that are parsed after all flags are known.
type raw struct {
	times, throttling, mode, knobsFile string
	latencies, instances               []string
	faults, volumeFaults               []string
}

func parse(arguments []string, output io.Writer) (*settings, error) {
	s, r := &settings{}, &raw{}
	flags := pflag.NewFlagSet("ec2emu", pflag.ContinueOnError)
	flags.SetOutput(output)
	flags.SortFlags = false
	s.addresses(flags)
	s.describe(flags, r)
	flags.Usage = func() {
		_, _ = fmt.Fprintf(output, "ec2emu is an EC2 endpoint (and instance metadata) on this machine, for everything EBS.\n\n%s", flags.FlagUsages())
	}
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return s, s.read(r)
}

func (s *settings) addresses(flags *pflag.FlagSet) {
	flags.StringVar(&s.address, "address", "127.0.0.1:4580", "where EC2 answers")
	flags.StringVar(&s.control, "control-address", "127.0.0.1:4581",
		"where the control interface and /metrics answer; empty is nowhere")
	flags.StringVar(&s.metadata, "metadata-address", "127.0.0.1:4590",
		"where the metadata service of the first instance answers, each next one port higher; empty is nowhere")
	flags.StringVar(&s.region, "region", "us-west-2", "the region")
	flags.StringVar(&s.account, "account", "123456789012", "the account's ID")
}

func (s *settings) describe(flags *pflag.FlagSet, r *raw) {
	flags.StringArrayVar(&r.instances, "instance", nil,
		"an instance, ID=TYPE,ZONE[,interfaces=N][,network=CIDR]; repeatable; two of m5.large in the first zone when there is none")
	flags.StringVar(&s.root, "root", "",
		"make volumes files below this directory, and attached ones loop devices (needs root, Linux)")
	flags.StringVar(&s.state, "state", "", "keep the world in this directory over restarts")
	flags.StringVar(&r.times, "times", "realistic", "how long transitions take: instant, bench, realistic or harsh")
	flags.StringArrayVar(&r.latencies, "latency", []string{"20ms..60ms"},
		"how long a call takes: 50ms, 20ms..60ms or 50ms~0.3 (median and deviation), or ACTION=… for one action; repeatable")
	flags.StringVar(&r.throttling, "throttling",
		ec2emu.Unlimited, "token buckets: unlimited, default (as EC2 publishes them), tight or storm")
	flags.StringVar(&r.mode, "throttling-mode",
		ec2emu.PerAPI, "a bucket per action (per-api), or one for all changes and one for all describes (shared)")
	flags.StringVar(&r.knobsFile, "knobs", "", `a file of JSON {"endpoint": …, "world": …} with any other knobs`)
	flags.StringArrayVar(&r.faults, "fault",
		nil, `a fault of calls in JSON, such as {"kind":"throttle","action":"AttachVolume","count":5}; repeatable`)
	flags.StringArrayVar(&r.volumeFaults, "volume-fault",
		nil, `a fault of volumes in JSON, such as {"kind":"stuck-attaching","count":1}; repeatable`)
	flags.Uint64Var(&s.seed, "seed", 1, "seed of everything that is random")
	flags.IntVar(&s.journal, "journal", 0, "how many calls the journal keeps; 10000 when 0")
	flags.BoolVarP(&s.verbose, "verbose", "v", false, "log every call")
}

// read parses the flags in r, after pflag has read the command line.
func (s *settings) read(r *raw) error {
	times, known := world.Preset(r.times)
	if !known {
		return fmt.Errorf("--times=%s: want instant, bench, realistic or harsh", r.times)
	}
	s.knobs.World = times
	s.knobs.Endpoint.Throttling = ec2emu.Throttling{Preset: r.throttling, Mode: r.mode}
	s.knobs.Endpoint.Latency = map[string]world.Takes{}
	for _, text := range r.latencies {
		if err := s.latency(text); err != nil {
			return err
		}
	}
	for _, text := range r.instances {
		one, err := parseInstance(text)
		if err != nil {
			return fmt.Errorf("--instance=%s: %w", text, err)
		}
		s.instances = append(s.instances, one)
	}
	if len(s.instances) == 0 {
		for _, id := range []string{"i-00000000000000001", "i-00000000000000002"} {
			s.instances = append(s.instances, instance{id: id, kind: "m5.large", zone: s.region + "a"})
		}
	}
	return errors.Join(s.file(r.knobsFile), list("--fault", r.faults, &s.faults),
		list("--volume-fault", r.volumeFaults, &s.volumeFaults))
}

func (s *settings) latency(text string) error {
	action, takes, named := strings.Cut(text, "=")
	if !named {
		action, takes = "*", text
	}
	var t world.Takes
	if err := t.UnmarshalText([]byte(takes)); err != nil {
		return fmt.Errorf("--latency=%s: %w", text, err)
	}
	s.knobs.Endpoint.Latency[action] = t
	return nil
}

func (s *settings) file(name string) error {
	if name == "" {
		return nil
	}
	text, err := os.ReadFile(name)
	if err == nil {
		s.knobs, err = s.knobs.Patched(text)
	}
	if err != nil {
		return fmt.Errorf("--knobs: %w", err)
	}
	return nil
}

func list[T any](flag string, texts []string, into *[]T) error {
	for _, text := range texts {
		var one T
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&one); err != nil {
			return fmt.Errorf("%s=%s: %w", flag, text, err)
		}
		*into = append(*into, one)
	}
	return nil
}

// parseInstance reads ID=TYPE,ZONE[,interfaces=N][,network=CIDR].
func parseInstance(text string) (instance, error) {
	var one instance
	id, rest, named := strings.Cut(text, "=")
	fields := strings.Split(rest, ",")
	if !named || len(fields) < 2 {
		return one, errors.New("want ID=TYPE,ZONE")
	}
	one.id, one.kind, one.zone = id, fields[0], fields[1]
	for _, field := range fields[2:] {
		name, value, _ := strings.Cut(field, "=")
		var err error
		switch name {
		case "interfaces":
			if one.interfaces, err = strconv.Atoi(value); err == nil && one.interfaces < 1 {
				err = errors.New("an instance has at least one interface")
			}
		case "network":
			one.network, err = netip.ParsePrefix(value)
		default:
			err = fmt.Errorf("unknown field %q; want interfaces or network", name)
		}
		if err != nil {
			return one, err
		}
	}
	return one, nil
}
