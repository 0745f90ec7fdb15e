# What one does here. .ci/run does all that a change must pass.
#
#   make build   the program, as bin/coordd
#   make test    all tests, those of the module in tests/ too
#   make check   format, vet, staticcheck, and the repository's own rules (internal/archtest)
#   make race    the core packages under the race detector
#   make fuzz    every fuzz target for FUZZTIME
#   make gen     write the generated code again (tools/)

GO          ?= go
FUZZTIME    ?= 10s
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Modules beside the one at the root, and the packages for the race detector, as far as they are there.
modules := $(patsubst %/go.mod,%,$(wildcard tests/go.mod tools/go.mod))
core    := $(addprefix ./,$(addsuffix /...,$(wildcard pkg wal snap mvcc lease watch raftnode peer apply server)))

.PHONY: build test check race fuzz gen

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

gen:
	cd tools && $(GO) run ./pbgen
