# The simulation laboratory: real code in virtual time, one order of effects from a seed
# (docs/reference/simulation.md). The test binaries are compiled with an overlay that takes
# the randomness out of the Go runtime, so that a seed repeats bit for bit.
DOOR ?= kube
SIMULATION := $(CURDIR)/bin/simulation
# One processor and no garbage collection while a seed runs: both change the order of goroutines.
SIMULATE := env GOMAXPROCS=1 GOGC=off

.PHONY: bin/simulation/kube.test bin/simulation/host.test simulate simulate-short simulate-all simulate-defects
bin/simulation/kube.test bin/simulation/host.test: bin/simulation/%.test:
	$(GO) run ./simulation/lab/overlay/cmd/make-overlay -o $(SIMULATION)/overlay
	$(GO) test -tags=$(TAGS),simulate -vet=off -overlay $(SIMULATION)/overlay/overlay.json -c -o $@ ./simulation/lab/$*

# One seed: its trace's hash, or its failure, shrunk. SEED=N, or CHOICES="…" of a failure.
simulate: bin/simulation/$(DOOR).test
	cd simulation/lab/$(DOOR) && $(SIMULATE) SEED="$(SEED)" CHOICES="$(CHOICES)" TRACE=$(SIMULATION)/trace $(SIMULATION)/$(DOOR).test -test.v -test.run 'TestSimulate$$'

# Some of them.
simulate-short: bin/simulation/$(DOOR).test
	simulation/lab/run-seeds $(SIMULATION)/$(DOOR).test $(or $(SEEDS),300)

# The whole: 10,000 seeds of a door.
simulate-all: bin/simulation/$(DOOR).test
	time simulation/lab/run-seeds $(SIMULATION)/$(DOOR).test $(or $(SEEDS),10000)

# Each known defect, planted in turn, has to be found within 2,000 seeds.
simulate-defects:
	$(GO) run ./simulation/lab/overlay/cmd/make-overlay -defects -o $(SIMULATION)/defects
	$(GO) test -tags=$(TAGS),simulate -vet=off -overlay $(SIMULATION)/defects/overlay.json -c -o $(SIMULATION)/$(DOOR)-defects.test ./simulation/lab/$(DOOR)
	simulation/lab/find-defects $(SIMULATION)/$(DOOR)-defects.test $(DOOR) $(or $(SEEDS),2000)
