# make run    a demo of everything on this machine: kill any process, from its page or a terminal, and watch it recover
# make unit   every test that needs no server: 80 s on two cores
# make test   install what the tests need, run everything with -race: about 13 minutes on two cores
# make check  formatting, vet, static checks, of bench/ and adapters/ too: no servers
# make prove  long simulation, long faults and the repeated ones; one table of what was tried
# make soak   two hours of random faults in all parts at once (SOAK=30m: as long as that); memory and descriptors must be level
# make dist   what a release is, in dist/: programs, .deb, .rpm, image, checksums, and what each is made of (SBOM)
# make bench  beside the peers; figures for docs/performance.md

GO ?= go

# A first build takes a quarter less when the compiler makes no tables for debuggers, which are left out below
# anyway, and collects garbage only near a bound.
QUICK = -gcflags=all=-dwarf=false

# The race detector looks at this program and at the driver, not into the C library and the
# database engine that were translated to Go: those take eight times as long under it.
RACE = -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc/...=-race=false -gcflags=modernc.org/memory=-race=false

# What takes longest starts first, so that nothing waits for it alone. Tests wait for much of
# their time: one package more is run at once than there are processors, and three for each
# processor where no server runs beside them. Vetting is for make check.
# The race detector would have each program sleep for a second at its end.
LONG = ./fault ./store/... ./sim ./cmd/...
ATONCE = $$(($$(getconf _NPROCESSORS_ONLN) + 1))
UNITS = $$(($$(getconf _NPROCESSORS_ONLN) * 3))

# Modules of their own, so that nobody who imports this one downloads the libraries that they adapt.
# clientgo is not among those: 700 packages take four minutes of a processor at first. make prove looks after it, and after tools/deploy.
ADAPTERS = gocron robfigcron

# One program, static and without paths of the machine that built it. Functions begin at multiples of 16 bytes, not 32:
# 280 KiB less.
BUILD = CGO_ENABLED=0 GOGC=off GOMEMLIMIT=1GiB $(GO) build -trimpath -buildvcs=auto $(QUICK) -ldflags '-s -w -funcalign=16'

RELEASE = $(shell sed -n 's/^const release = "\(.*\)"$$/\1/p' cmd/understudy/version.go)

.PHONY: build run unit test check prove soak bench dist clean deps

build:
	$(BUILD) -o bin/understudy ./cmd/understudy

# Who only wants to see it need not wait for what it does not use, nor for a compiler that optimises: that is a quarter of
# its time, and the demonstration keeps its bounds without.
run:
	$(BUILD) -gcflags='all=-dwarf=false -N -l' -tags embedded -o bin/demo ./cmd/understudy
	@./bin/demo demo

deps:
	@./scripts/test-deps

# -short skips each test that needs a server or another program, by name.
unit:
	$(GO) test -short -vet=off -ldflags='-s -w' -p $(UNITS) $(LONG) ./...

test: deps
	UNDERSTUDY_REQUIRE_BACKENDS=1 GORACE=atexit_sleep_ms=100 \
	  $(GO) test $(RACE) -vet=off -p $(ATONCE) -shuffle=on -timeout 20m $(LONG) ./...
	for m in $(ADAPTERS); do (cd adapters/$$m && GORACE=atexit_sleep_ms=100 $(GO) test $(RACE) -vet=off -timeout 10m .) || exit 1; done

check:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not formatted (run gofmt -w):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags embedded ./cmd/understudy
	$(GO) vet -tags manpages ./cmd/understudy
	$(GO) test -tags embedded ./store/open ./resolve/dns
	$(GO) fix -diff ./...
	GOOS=darwin $(GO) vet ./...
	$(GO) mod tidy -diff
	cd bench && $(GO) vet ./... && $(GO) test . && $(GO) mod tidy -diff
	cd tools/dist && $(GO) vet . && $(GO) mod tidy -diff
	for m in $(ADAPTERS); do (cd adapters/$$m && $(GO) vet ./... && $(GO) mod tidy -diff) || exit 1; done
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	$(GO) test ./internal/archtest
	GO="$(GO)" scripts/vulncheck

# A pipe has the status of its last command: the stream says that "go test" failed or was killed, on a line of its own.
prove: deps
	@./scripts/test-deps release
	@mkdir -p docs/prove
	cd adapters/clientgo && $(GO) mod tidy -diff && $(GO) test -race -count=1 -timeout 10m .
	cd tools/deploy && $(GO) mod tidy -diff && UNDERSTUDY_REQUIRE_BACKENDS=1 $(GO) test -vet=off -count=1 -timeout 30m .
	{ UNDERSTUDY_REQUIRE_BACKENDS=1 UNDERSTUDY_PROVE=1 $(GO) test -json -p 1 -count=1 -timeout 4h -run 'Simulation|Seeds|ShardSchedules|Fault|Takeover|IsItsModel|Conformance|TestJobs|TestAccess|StartTogether|ALongQueue|NoListIsDear|ScriptsOnPostgres|Packages|TestRuns/examples|InBrowser|Postgres18|OtherLanguages' ./sim/... ./fault/... ./store/sqlite ./store/postgres ./api ./docs ./web ./cmd/understudy || \
	  printf '\n{"Action":"fail","Package":"go test"}\n'; } | \
	  $(GO) run ./internal/provereport -of "$(RELEASE), $$(git rev-parse --short=12 HEAD)" -o docs/prove/$(RELEASE).md

SOAK = 2h

soak: deps
	UNDERSTUDY_REQUIRE_BACKENDS=1 UNDERSTUDY_SOAK=$(SOAK) $(GO) test -count=1 -timeout 4h -run '^TestSoak$$' -v ./fault

bench: deps
	cd bench && UNDERSTUDY_REQUIRE_BACKENDS=1 $(GO) run .

dist:
	@BUILD="$(BUILD)" GO="$(GO)" scripts/dist

clean:
	rm -rf bin dist
