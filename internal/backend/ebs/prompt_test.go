package ebs_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// promptRuns is how many seeds TestPrompt tries.
var promptRuns = flag.Uint64("prompt.runs", 4, "seeds that TestPrompt tries, from chaos.seed on")

// slowWeather mixes slow and stuck transitions with usual ones; calls do not fail.
func slowWeather() weather {
	knobs := world.Realistic()
	knobs.Cooldown, knobs.Times.Optimize = world.CooldownOff, world.Fixed(time.Second)
	return weather{knobs: knobs, prompt: true, volumeFaults: []world.Fault{
		{Kind: world.Slow, Probability: 0.15, Takes: world.Uniform(5*time.Second, 50*time.Second)},
		{Kind: world.StuckAttaching, Probability: 0.03}, {Kind: world.StuckDetaching, Probability: 0.01},
	}}
}

// Volumes are used among slow and stuck transitions. Each answer comes at most one and a
// half times the usual time of its kind after EC2 was done.
func TestPrompt_amongSlowAndStuckTransitions(t *testing.T) {
	t.Parallel()
	for run := range *promptRuns {
		synctest.Test(t, func(t *testing.T) {
			c := newChaos(t, 300, slowWeather())
			defer c.close()
			ctx, stop := context.WithCancel(t.Context())
			var others, lives sync.WaitGroup
			others.Go(func() { c.operate(ctx) })
			for i := range 3 {
				lives.Go(func() {
					(&life{chaos: c, number: i, random: rand.New(rand.NewPCG(c.seed+run, uint64(i)))}).live(t.Context())
				})
			}
			lives.Wait()
			stop()
			others.Wait()
			c.check()
		})
	}
}

// promptly checks when a call was answered that EC2 was done for.
func (c *chaos) promptly(kind world.Transition, id string, called time.Time) {
	over := c.emulator.World().Ended(kind, id)
	if !c.prompt || over.Before(called) { // it was so already
		return
	}
	usual := 2 * time.Second
	if kind == world.CreateTransition {
		usual = 1500 * time.Millisecond
	}
	const calls = time.Second // of EC2, and what describes lag behind
	if late := time.Since(over); late > usual*3/2+calls {
		c.Errorf("%s of %s was answered %v after EC2 was done", kind, id, late)
	}
}
