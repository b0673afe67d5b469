# Every target does one thing; `make check` is exactly what CI runs.

FUZZTIME ?= 30s
PORT     ?= 8787

# Tools are pinned here and not in go.mod: programs that import maestro need none of them.
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK    = go run github.com/kisielk/errcheck@v1.30.0
GOTESTSUM   = go run gotest.tools/gotestsum@v1.13.0 --format-hide-empty-pkg
MISSPELL    = go run github.com/golangci/misspell/cmd/misspell@v0.8.0
GOVULNCHECK = go run golang.org/x/vuln/cmd/govulncheck@v1.9.0
ACTIONLINT  = go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

PLATFORMS = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build run
build: ## bin/maestro, a static binary without symbols for debuggers
	CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -ldflags='-s -w' -o bin/maestro ./cmd/maestro

run: build ## serve this directory on 127.0.0.1:$(PORT); more flags in ARGS
	@echo "another port with PORT=N"
	exec bin/maestro serve --listen 127.0.0.1:$(PORT) $(ARGS)

.PHONY: setup test test-fast fuzz golden cover
setup: ## download what the other targets need
	go mod download && go -C bench mod download && go -C deploy/check mod download

# Programs of others that tests run. Installed anew only if a lock file is newer: several
# targets use them at the same time.
MODULES = $(addsuffix /node_modules/.package-lock.json,web contracts/ts internal/agent/mcp/testdata/everything \
	internal/agent/acpserver/testdata/acpx internal/agent/acpserver/testdata/sdk)

.PHONY: others
others: $(MODULES) ## programs of others that tests run, from npm

%/node_modules/.package-lock.json: %/package-lock.json
	npm --prefix $* ci --no-audit --no-fund --silent --ignore-scripts
	@touch $@

# The packages that take longest run first. The others wait more than they compute: four at a
# time. The browsers of the page run alone. A failure ends nothing, so that one run tells all.
# Without GORACE each program with the race detector, tests included, sleeps for a second when
# it exits. The detector needs cgo. `go test` says nothing of a package before those in front
# of it are done; gotestsum has a line for each as it ends.
RACE    = -race -shuffle=on -timeout 30m
LONGEST = ./cmd/maestro ./conformance ./hub ./utility
test: export GORACE += atexit_sleep_ms=0
test: export CGO_ENABLED = 1
test: setup others ## all tests with the race detector, in random order; about 15 minutes on two processors
	@echo "all tests take about 15 minutes on two processors, and the page 5 of them"
	@began=$$(date +%s); failed=; \
	$(GOTESTSUM) --format pkgname -- $(RACE) $(LONGEST) || failed=1; \
	$(GOTESTSUM) --format pkgname -- $(RACE) -p 4 $$(go list ./... | grep -vE '/(cmd/maestro|conformance|hub|utility|web)$$') || failed=1; \
	(cd bench && $(GOTESTSUM) --format pkgname -- $(RACE) ./...) || failed=1; \
	$(GOTESTSUM) --format testname -- $(RACE) ./web || failed=1; \
	test -z "$$failed" && echo "all tests passed in $$(( $$(date +%s) - began )) s"

# Tests wait more than they compute: four packages at a time, those that take longest first.
test-fast: others ## the tests of what changed, but for those of the whole program and the page; no race detector
	@echo "half a minute after most edits, two minutes for everything; without cmd/maestro, conformance, web, bench and the race detector"
	@$(GOTESTSUM) --format pkgname -- -p 4 -vet=off ./utility ./agent ./internal/agent/acp ./hub $$(go list ./... | grep -v -e /cmd/ -e /conformance -e /web)

fuzz: ## every fuzz target for FUZZTIME (30s) each
	@grep -rn '^func Fuzz' --include='*_test.go' . | sed -E 's#^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9_]*).*#\1 \2#' | sort | while read -r dir name; do \
		echo "$$dir $$name"; go -C "$$dir" test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x . </dev/null || exit 1; done

golden: ## rewrite the golden files; the diff is the review
	@for dir in $$(grep -rlE 'flag\.Bool\("update"' --include='*_test.go' . | xargs -r -n1 dirname | sort -u); do go test "$$dir" -update || exit 1; done

cover: others ## test coverage by function; bin/cover.out for go tool cover -html
	@mkdir -p bin && go test -coverprofile=bin/cover.out ./... && go tool cover -func=bin/cover.out | tail -n 1

.PHONY: bench bench-smoke kills drains conformance example
bench: web/node_modules/.package-lock.json ## compare with other servers, five repetitions; about 40 minutes, Linux; ARGS='-only growth' for one group
	go -C bench build -o ../bin/bench . && exec bin/bench -timeout 60m $(ARGS)

bench-smoke: web/node_modules/.package-lock.json ## one tiny repetition of every measurement
	go -C bench build -o ../bin/bench . && exec bin/bench -quick

kills: build ## kill bin/maestro 100 times in mid-stream and look for losses; about a minute
	go -C bench build -o ../bin/kills ./kills && exec bin/kills $(ARGS)

drains: build ## move a session in use from one hosted runner to another, 20 times; about a minute
	go -C bench build -o ../bin/drains ./drains && exec bin/drains $(ARGS)

conformance: build ## judge bin/maestro over stdio, WebSocket and HTTP, and as a hosted runner
	.ci/conformance bin/maestro

# exec, here and above, replaces the shell, so that a signal reaches the program.
.PHONY: agents agent-opencode agent-claude transcripts
agents: ## real agents from npm, about 650 MB
	npm --prefix examples/agents install --no-save --no-audit --no-fund

agent-opencode: build ## serve opencode with the local model; needs agents
	exec env PORT=$(PORT) examples/agents/opencode $(ARGS)

agent-claude: build ## serve Claude Code with the local model; needs agents
	exec env PORT=$(PORT) examples/agents/claude $(ARGS)

transcripts: build ## docs/transcripts anew; needs agents, and chromium for the pictures
	@for a in opencode claude; do node examples/agents/record.mjs $$a docs/transcripts/$$a.md || exit 1; done
	@npm --prefix web ci --no-audit --no-fund --silent --ignore-scripts
	@for a in opencode claude; do node examples/agents/page.mjs $$a docs/transcripts || exit 1; done

example: build ## run examples/node against bin/maestro
	.ci/example bin/maestro

.PHONY: gen gen-check web screenshots fmt fmt-check
gen: ## schema, TypeScript types, protocol tables, docs/rules.md and THIRD_PARTY_LICENSES
	go run ./contracts/gen
	go run ./internal/thirdparty

web: web/node_modules/.package-lock.json ## web/dist, the page that bin/maestro serves; needs npm
	node web/build.mjs

screenshots: web build ## docs/screenshots anew; needs chromium
	node web/e2e/screenshots.mjs docs/screenshots

gen-check: web/node_modules/.package-lock.json ## fail if gen or web would change anything
	go test -count=1 -run AreCurrent ./contracts/gen ./internal/thirdparty
	node web/build.mjs --check

fmt: ## format all Go files
	gofmt -s -w .

fmt-check: ## fail if fmt would change anything
	@out=$$(gofmt -s -l .); test -z "$$out" || { echo "not formatted:"; echo "$$out"; exit 1; }

.PHONY: api api-check
api: ## docs/api, the exported identifiers of the public packages, and what broke since the last release
	go test -count=1 -run TestPublicAPIIsRecorded ./docs -update
	.ci/api -w

api-check: ## fail if api would change anything
	go test -count=1 -run TestPublicAPIIsRecorded ./docs
	.ci/api

.PHONY: lint tidy-check vet staticcheck errcheck spelling bidi actionlint vuln layering
lint: fmt-check tidy-check vet staticcheck errcheck spelling bidi actionlint api-check ## all linters

tidy-check: ## go.mod and go.sum hold what is needed and no more
	go mod tidy -diff && go -C bench mod tidy -diff && go -C deploy/check mod tidy -diff

vet: ## likely mistakes, by go vet
	go vet ./... && go -C bench vet ./... && go -C deploy/check vet ./...

staticcheck: ## misuse and dead code
	$(STATICCHECK) ./... && (cd bench && $(STATICCHECK) ./...) && cd deploy/check && $(STATICCHECK) ./...

errcheck: ## unchecked errors; .ci/errcheck lists the exceptions
	$(ERRCHECK) -ignoretests -exclude .ci/errcheck ./... && cd bench && $(ERRCHECK) -ignoretests -exclude ../.ci/errcheck ./...

spelling: ## common misspellings, but for one that a test wants
	$(MISSPELL) -error -i modle $$(find . -name '*.go' -o -name '*.md' | grep -v node_modules)

# U+202A to U+202E and U+2066 to U+2069, as bytes of UTF-8.
bidi: ## characters that show source in another order than the compiler reads it
	@out=$$(find . -name node_modules -prune -o -type f \( -name '*.go' -o -name '*.[jt]s' -o -name '*.mjs' -o -name '*.tsx' -o -name '*.css' -o -name '*.md' \) -print0 | \
		LC_ALL=C xargs -0 grep -nE "$$(printf '\342\200[\252-\256]|\342\201[\246-\251]')"); test -z "$$out" || { echo "$$out"; exit 1; }

actionlint: ## mistakes in the workflows of GitHub
	$(ACTIONLINT)

vuln: ## known vulnerabilities; needs the vulnerability database, so not in check
	$(GOVULNCHECK) ./...

layering: ## hold the imports against the table of rooms
	go test -count=1 -v ./internal/layering

.PHONY: deploy-check image
deploy-check: ## try the examples in deploy; needs caddy, curl, nginx, prometheus and systemd of Debian
	PATH="$$PATH:/usr/sbin" go -C deploy/check test -count=1 -shuffle=on ./...

image: ## the container image of deploy/Dockerfile; needs docker
	docker build -f deploy/Dockerfile -t maestro .

.PHONY: snapshot snapshot-check
snapshot: ## all files of a release, for every platform, into bin/dist
	PLATFORMS="$(PLATFORMS)" .ci/release

snapshot-check: ## install and run what snapshot built, and build it again to compare
	.ci/release-check

.PHONY: cross check clean
cross: ## compile for every platform
	@for p in $(PLATFORMS); do echo "$$p"; CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} go build ./... || exit 1; done

check: ## exactly what CI runs
	.ci/run

.PHONY: size
size: ## lines by room, megabytes of the binary, and the time it takes to start
	.ci/size

clean: ## remove what was built
	rm -rf bin
