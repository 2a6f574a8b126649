# `make test` is all a fresh machine needs; `.ci/run` is the whole gate and calls it.

GO ?= go
FUZZTIME ?= 10s
SUITE ?= ../shared/cache-tests/tests.json
as_root = $$([ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: test redis lint fuzz bench conformance stampede chaos real image

# Every test, under the race detector. Redis is a real one, so it is installed where it is missing.
test: redis
	$(GO) test -race ./...

redis:
	@command -v redis-server >/dev/null || { echo 'installing redis-server' && \
		$(as_root) apt-get update -qq && \
		$(as_root) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server; }

lint:
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo 'not formatted; run: gofmt -w '$$files; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

# Each fuzz target for FUZZTIME. When its time is over in mid-run, go test says so as if it had failed; only an input
# that fails is a failure.
fuzz:
	@set -e; for dir in $$($(GO) list -f '{{.Dir}}' ./...); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$dir"/*_test.go 2>/dev/null); do \
			echo "fuzz $$target for $(FUZZTIME) in $${dir#$(CURDIR)/}"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -parallel 2 "$$dir" >fuzz.out || \
				{ grep -q 'context deadline exceeded' fuzz.out && ! grep -q 'Failing input' fuzz.out; } || { cat fuzz.out; exit 1; }; \
		done; \
	done; rm -f fuzz.out

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# The public suite http-tests/cache-tests, from its exported file.
conformance:
	@[ -f '$(SUITE)' ] || { echo 'no suite at $(SUITE): export one from http-tests/cache-tests, then make conformance SUITE=FILE'; exit 1; }
	$(GO) test -count=1 -v -run Conformance ./e2e -args -suite '$(abspath $(SUITE))'

# The table of README's "How it compares": two and three replicas, and each of nginx, varnish, trafficserver and squid
# whose Debian package is installed. Four minutes.
stampede: redis
	$(GO) test -count=1 -v -run Stampede ./e2e -args -long

# Random faults for two minutes against three replicas under 200 clients; every answer is held to what is promised.
# The same again: make chaos SEED=7.
SEED ?= $$(date +%s)
chaos: redis
	$(GO) test -count=1 -v -timeout 30m -run Chaos ./e2e -args -chaos 2m -seed $(SEED)

# In front of servers that none of us wrote: nginx and Python's.
real:
	bash e2e/real.sh

# Builds the image without a registry, and asks its binary for a page.
image:
	bash e2e/image.sh
