package main

import (
	"context"
	"fmt"
	"time"
)

// measureStorm measures Holdfast and then the alternative on one cluster.
func measureStorm(ctx context.Context, s settings) ([]row, error) {
	return on(ctx, s, func(ctx context.Context, b *bench) ([]row, error) {
		ours, other, err := b.systems(ctx)
		if err != nil {
			return nil, err
		}
		// The first storm would run on a cluster that still warms up.
		if err := b.warm(ctx, ours); err != nil {
			return nil, err
		}
		mine, err := b.storm(ctx, ours, s.claims)
		if err != nil {
			return nil, err
		}
		var theirs *storm
		if other != nil {
			r, err := b.storm(ctx, other, s.claims)
			if err != nil {
				return nil, err
			}
			theirs = &r
		}
		return stormRows(s, mine, theirs), nil
	})
}

// warm creates some volumes and deletes them, without counting.
func (b *bench) warm(ctx context.Context, m *system) error {
	quick := *b
	quick.s.idleTime = 0
	_, err := quick.storm(ctx, m, min(b.s.claims, 100))
	return err
}

func stormRows(s settings, mine storm, theirs *storm) []row {
	rows := []row{{
		work: "memory of all controllers, idle", holdfast: mine.idle.memory(),
		alternative: "six sidecars of upstream*", measured: "≈ 250 MiB", aim: "≤ 60 MiB, with the driver",
	}}
	if theirs != nil {
		rows[0].against(s, theirs.idle.memory(), float64(mine.idle.rss), float64(theirs.idle.rss))
	}
	for _, wave := range waves() {
		p := wave.of(mine)
		rate := row{work: fmt.Sprintf("%d %s", s.claims, wave.work), holdfast: perSecond(p.rate()), aim: wave.aim}
		objects, events := p.writes.split(p.items)
		count := row{work: "— writes for each, and events", holdfast: perItem(objects, events), aim: "no more than upstream"}
		cpu := row{work: "— CPU of the controllers", holdfast: seconds(p.cpu)}
		if wave.published != "" {
			rate.alternative, rate.measured = "sidecars of upstream*", wave.published
		}
		if theirs != nil {
			q := wave.of(*theirs)
			rate.against(s, perSecond(q.rate()), p.rate(), q.rate())
			others, noise := q.writes.split(q.items)
			count.against(s, perItem(others, noise), objects, others)
			cpu.against(s, seconds(q.cpu), p.cpu.Seconds(), q.cpu.Seconds())
		}
		rows = append(rows, rate, count, cpu)
		if p.intents.writes > 0 {
			rows = append(rows, row{work: "— writes of intents for each, and their bytes in etcd", holdfast: p.intents.each(p.items), aim: "≤ 1.1, ≤ 3 KiB"})
		}
	}
	total := row{work: "writes for each volume in all, from the claim to the end, and events", holdfast: perItem(mine.writes()), aim: "ratio ≤ 0.6"}
	cpu := row{work: "CPU of the controllers in all", holdfast: seconds(mine.cpu()), aim: "ratio ≤ 0.5"}
	if theirs != nil {
		cpu.against(s, seconds(theirs.cpu()), mine.cpu().Seconds(), theirs.cpu().Seconds())
		objects, _ := mine.writes()
		others, _ := theirs.writes()
		total.against(s, perItem(theirs.writes()), objects, others)
	}
	return append(rows, total, cpu)
}

// wave describes the table rows of a storm's phase.
type wave struct {
	work, published, aim string
	of                   func(storm) phase
}

func waves() []wave {
	return []wave{
		{"claims to Bound", "5/s; 69/s tuned", "ratio ≥ 1.0", func(r storm) phase { return r.claims }},
		{"attachments to attached", "", "ratio ≥ 1.9", func(r storm) phase { return r.attach }},
		{"attachments to gone", "", "", func(r storm) phase { return r.detach }},
		{"claims deleted, to the end of their volumes", "2.4/s; 74/s tuned", "ratio ≥ 1.2", func(r storm) phase { return r.deleted }},
	}
}

// writes are those for one volume in all phases.
func (r storm) writes() (objects, events float64) {
	for _, wave := range waves() {
		p := wave.of(r)
		o, e := p.writes.split(p.items)
		objects, events = objects+o, events+e
	}
	return objects, events
}

// cpu is the CPU time of all phases.
func (r storm) cpu() (sum time.Duration) {
	for _, wave := range waves() {
		sum += wave.of(r).cpu
	}
	return sum
}

// against puts the alternative's measurement of this run into the row.
func (r *row) against(s settings, measured string, a, b float64) {
	r.alternative, r.measured, r.ratio = s.alternative, measured, ratio(a, b)
}

func perItem(objects, events float64) string { return fmt.Sprintf("%.2f + %.2f", objects, events) }
