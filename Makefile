# make run    three instances on this machine: kill one and see
# make test   install what the tests need, run everything with -race
# make check  formatting, vet, static checks: fast, no servers
# make prove  long simulation and long faults; one table of what was tried
# make bench  beside the peers; figures for docs/performance.md

GO ?= go

# A first build takes a quarter less when the compiler makes no tables for debuggers, which are left out below
# anyway, collects garbage only near a bound, and does not inline the client of Redis, which waits for a network.
QUICK = -gcflags=all=-dwarf=false -gcflags='github.com/redis/go-redis/v9=-dwarf=false -l'

# The race detector looks at this program and at the driver, not into the C library and the
# database engine that were translated to Go: those take eight times as long under it.
RACE = -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc/...=-race=false -gcflags=modernc.org/memory=-race=false

# What takes longest begins first, so that it is not waited for alone. Tests wait for much of
# their time: one package more is run at once than there are processors. Vetting is for make check.
# The race detector would have each program sleep for a second at its end.
LONG = ./fault ./store/... ./sim ./cmd/...
ATONCE = $$(($$(getconf _NPROCESSORS_ONLN) + 1))

# One program, static and without paths of the machine that built it.
BUILD = CGO_ENABLED=0 GOGC=off GOMEMLIMIT=1GiB $(GO) build -trimpath $(QUICK) -ldflags '-s -w'

.PHONY: build run test check prove bench clean deps

build:
	$(BUILD) -o bin/understudy ./cmd/understudy

# Who only wants to see it need not wait for the clients of PostgreSQL and Redis to be compiled.
run:
	$(BUILD) -tags embedded -o bin/demo ./cmd/understudy
	@./bin/demo demo

deps:
	@./scripts/test-deps

test: deps
	UNDERSTUDY_REQUIRE_BACKENDS=1 GORACE=atexit_sleep_ms=100 \
	  $(GO) test $(RACE) -vet=off -p $(ATONCE) -shuffle=on -timeout 20m $(LONG) ./...

check:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not formatted (run gofmt -w):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags embedded ./cmd/understudy
	$(GO) test -tags embedded ./store/open
	$(GO) fix -diff ./...
	GOOS=darwin $(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	$(GO) test ./internal/house

prove: deps
	UNDERSTUDY_REQUIRE_BACKENDS=1 UNDERSTUDY_PROVE=1 $(GO) test -json -count=1 -timeout 2h -run 'Simulation|Seeds|Fault|Takeover|IsItsModel' ./sim/... ./fault/... ./store/sqlite | $(GO) run ./internal/proof

bench: deps
	cd bench && UNDERSTUDY_REQUIRE_BACKENDS=1 $(GO) run .

clean:
	rm -rf bin
