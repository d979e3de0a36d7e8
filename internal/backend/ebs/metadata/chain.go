package metadata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// defaultTimeout bounds one source, so that the next one is asked. A count of interfaces
// has an older answer to fall back on, and so a shorter timeout.
const (
	defaultTimeout = 5 * time.Second
	recountTimeout = time.Second
)

// Chain asks sources in their order until one answers, and caches the answer, because
// the identity of an instance does not change while it runs. It asks for the number of
// interfaces each time.
type Chain struct {
	given   Instance
	sources []Source
	timeout time.Duration
	log     *slog.Logger
	lock    chan struct{} // holds one value while unlocked
	known   *Instance
	counter Counter
}

// Options of a Chain.
type Options struct {
	// Given are values of the command line; they override those of the sources. If ID,
	// Type and Zone are given, no source is asked.
	Given Instance
	// Sources in the order of trust.
	Sources []Source
	// Timeout bounds each source; 5 s by default.
	Timeout time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// NewChain makes a Chain. It asks no source yet.
func NewChain(o Options) *Chain {
	c := &Chain{given: o.Given, sources: o.Sources, timeout: cmp.Or(o.Timeout, defaultTimeout), log: o.Logger,
		lock: make(chan struct{}, 1)}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.lock <- struct{}{}
	return c
}

// Instance returns the identity of this instance. Concurrent calls wait for each other.
// If no source answers, the error is ErrUnavailable with the error of each source.
func (c *Chain) Instance(ctx context.Context) (Instance, error) {
	select {
	case <-c.lock:
		defer func() { c.lock <- struct{}{} }()
	case <-ctx.Done():
		return Instance{}, fmt.Errorf("ask for the instance's metadata: %w", context.Cause(ctx))
	}
	if c.known == nil {
		if err := c.ask(ctx); err != nil {
			return Instance{}, err
		}
	} else {
		c.recount(ctx)
	}
	return *c.known, nil
}

func (c *Chain) ask(ctx context.Context) error {
	if c.given.ID != "" && c.given.Type != "" && c.given.Zone != "" {
		return c.accept(Instance{Source: "flags"}, nil)
	}
	if len(c.sources) == 0 {
		return fmt.Errorf("%w: no source of metadata; give --metadata-sources, or all of --node-id, --instance-type and --zone", backend.ErrInvalid)
	}
	var failed []string
	for _, source := range c.sources {
		bounded, cancel := context.WithTimeout(ctx, c.timeout)
		found, err := source.Instance(bounded)
		cancel()
		if err == nil {
			return c.accept(found, source)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("ask %s for the instance's metadata: %w (%w)", source.Name(), context.Cause(ctx), err)
		}
		c.log.Warn("a source of instance metadata does not answer", "source", source.Name(), "error", err)
		failed = append(failed, fmt.Sprintf("%s: %v", source.Name(), err))
	}
	return fmt.Errorf("%w: no source of instance metadata answered: %s",
		backend.ErrUnavailable, strings.Join(failed, "; "))
}

// accept checks the answer of a source together with the given fields.
func (c *Chain) accept(found Instance, source Source) error {
	for _, field := range []struct{ given, found *string }{
		{&c.given.ID, &found.ID}, {&c.given.Type, &found.Type}, {&c.given.Region, &found.Region},
		{&c.given.Zone, &found.Zone}, {&c.given.ZoneID, &found.ZoneID}, {&c.given.OutpostARN, &found.OutpostARN},
	} {
		*field.found = cmp.Or(*field.given, *field.found)
	}
	found.Interfaces = cmp.Or(c.given.Interfaces, found.Interfaces)
	if !instanceID.MatchString(found.ID) {
		return fmt.Errorf("%w: %q, from %s, is not the ID of an EC2 instance (i- and 8 or 17 hexadecimal digits)",
			backend.ErrInvalid, found.ID, found.Source)
	}
	// A source that lacks the number now will lack it later.
	if counter, counts := source.(Counter); counts && c.given.Interfaces == 0 && found.Interfaces > 0 {
		c.counter = counter
	}
	c.known = &found
	c.log.Info("this instance", "instance", found.ID, "type", found.Type, "zone", found.Zone,
		"source", found.Source, "interfaces", found.Interfaces)
	return nil
}

// recount updates the number of interfaces. If the source does not answer, the last
// number stays.
func (c *Chain) recount(ctx context.Context) {
	if c.counter == nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, min(c.timeout, recountTimeout))
	defer cancel()
	now := *c.known
	if err := c.counter.Count(bounded, &now); err != nil {
		if !errors.Is(err, context.Canceled) {
			c.log.Warn("the number of network interfaces could not be updated",
				"last", c.known.Interfaces, "error", err)
		}
		return
	}
	c.known = &now
}
