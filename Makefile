# What one does here. .ci/run does all that a change must pass.
#
#   make build   the program, as bin/coordd
#   make test    all tests, those of the module in tests/ too
#   make check   format, vet, staticcheck, and the repository's own rules (internal/archtest)
#   make race    the core packages under the race detector
#   make fuzz    every fuzz target for FUZZTIME
#   make sim     clusters under faults, in virtual time, as many processes as there are cores: SEED=, the first seed (0: by the clock),
#                N=, how many, FOR=, begin none after that much real time
#   make mutations   deliberate bugs, each of which the simulation or a test must catch; five minutes or more, and a table at the end: ONLY=, a pattern of their names
#   make gen     write the generated code again (tools/)

SHELL       := bash
.SHELLFLAGS := -o pipefail -c
GO          ?= go
FUZZTIME    ?= 10s
SEED        ?= 1
N           ?= 20
FOR         ?= 0
ONLY        ?= .
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Modules beside the one at the root, and the packages for the race detector, as far as they are there.
modules := $(patsubst %/go.mod,%,$(wildcard tests/go.mod tools/go.mod))
core    := $(addprefix ./,$(addsuffix /...,$(wildcard pkg wal snap mvcc lease watch raftnode peer apply server)))

.PHONY: build test check race fuzz sim mutations gen

build:
	$(GO) build -trimpath -o bin/coordd ./cmd/coordd

test: build
	$(GO) test ./...
	$(if $(wildcard tests/go.mod),cd tests && $(GO) test ./...)

check:
	@bad=$$(gofmt -l .) && test -z "$$bad" || { echo "not formatted; run gofmt -w on: $$bad"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	for m in $(modules); do (cd $$m && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...) || exit 1; done
	$(GO) test ./internal/archtest

race:
	$(GO) test -race $(core)

# go test fuzzes one target of one package at a time.
fuzz:
	@grep -rHo --include='*_test.go' --exclude-dir=tests --exclude-dir=tools '^func Fuzz[A-Za-z0-9_]*' . | \
	while IFS=: read -r file target; do \
		echo "fuzz $${file%/*} $${target#func }"; \
		$(GO) test -run '^$$' -fuzz "^$${target#func }\$$" -fuzztime $(FUZZTIME) "$${file%/*}" || exit 1; \
	done

# The simulation has its own limits of time, so go test gets none. A failure names the seed, and the same
# line with SEED= runs it again.
sim:
	$(GO) test ./internal/sim -run '^TestSeeds$$' -v -count 1 -timeout 0 -args \
		-sim.seed $(SEED) -sim.n $(N) -sim.budget $(FOR) $(SIMFLAGS)

# Each bug goes into a copy of the source, so the tree stays as it is.
mutations:
	$(GO) test -tags mutate ./internal/sim/mutation -run '^TestCaught$$' -v -count 1 -timeout 0 -args \
		-mutate.only '$(ONLY)' $(MUTATEFLAGS)

gen:
	cd tools && $(GO) run ./pbgen
