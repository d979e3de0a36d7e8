# The simulation laboratory: real code in virtual time, one order of effects from a seed
# (docs/reference/simulation.md). The test binaries are compiled with an overlay that takes
# the randomness out of the Go runtime, so that a seed repeats bit for bit.
DOOR ?= kube
SIMULATION := $(CURDIR)/bin/simulation
SIMULATE := -test.v -test.timeout 0 -test.run 'TestSimulate$$'

# build-simulation NAME OVERLAY-OPTIONS DOOR: a test binary of a door. The overlay is in a directory that
# ./... leaves out.
define build-simulation
	$(GO) run ./simulation/lab/overlay/cmd/make-overlay $(2) -o $(SIMULATION)/_$(1)
	$(GO) test -tags=$(TAGS),simulate -vet=off -overlay $(SIMULATION)/_$(1)/overlay.json -c -o $(SIMULATION)/$(3)-$(1).test ./simulation/lab/$(3)
endef

.PHONY: simulate simulate-short simulate-all simulate-defects
# One seed: its trace's hash, or its failure, shrunk. SEED=N, or CHOICES="…" of a failure. With
# DEFECT=NAME a known defect is planted.
simulate:
	$(call build-simulation,$(if $(DEFECT),defects,sound),$(if $(DEFECT),-defects),$(DOOR))
	SEED="$(SEED)" CHOICES="$(CHOICES)" DEFECT="$(DEFECT)" TRACE=$(SIMULATION)/trace $(SIMULATION)/$(DOOR)-$(if $(DEFECT),defects,sound).test $(SIMULATE)

# Some seeds of each door.
simulate-short:
	$(call build-simulation,sound,,kube)
	$(call build-simulation,sound,,nodes)
	$(call build-simulation,sound,,host)
	SEEDS=$(or $(SEEDS),300) TRACE=$(SIMULATION)/trace $(SIMULATION)/kube-sound.test $(SIMULATE)
	SEEDS=$(or $(SEEDS),100) TRACE=$(SIMULATION)/trace $(SIMULATION)/nodes-sound.test $(SIMULATE)
	SEEDS=$(or $(SEEDS),300) TRACE=$(SIMULATION)/trace $(SIMULATION)/host-sound.test $(SIMULATE)

# The whole: 10,000 seeds of a door.
simulate-all:
	$(call build-simulation,sound,,$(DOOR))
	FIRST="$(FIRST)" SEEDS=$(or $(SEEDS),10000) TRACE=$(SIMULATION)/trace $(SIMULATION)/$(DOOR)-sound.test $(SIMULATE)

# Each known defect, planted in turn, has to be found within 2,000 seeds.
simulate-defects:
	$(call build-simulation,defects,-defects,$(DOOR))
	SEEDS=$(or $(SEEDS),2000) DEFECTS="$(or $(DEFECTS),$$($(GO) run ./simulation/lab/defects/cmd/list-defects $(DOOR)))" $(SIMULATION)/$(DOOR)-defects.test $(SIMULATE)
