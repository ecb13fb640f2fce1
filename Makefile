# The front door. Every target makes sure of what it needs (scripts/need) and says what is missing if it cannot.
#
#     make check              before everything else: what a change has to pass, with nothing but Rust
#     make tour TOUR=...      arguments for the tour
#     make report REPORT=...  --quick, --exact, --html FILE
#     make test TEST=...      arguments for cargo test, for example TEST='-p kiban-atm aal5'
#     make properties         CASES=20000 for each property, SEED= from which they grow (make test has a fixed one)
#     make soak               SEEDS=10000, or TIME=600 seconds for each test, half of it for every n; SEED=17 repeats one
#     make test-siw SIW=... a case of it, or --if-available: skips it where no guest can be made (docs/siw.md)
#     make bench BENCH=...    arguments for the benchmarks; KIBAN_BENCH_QUICK=1 makes the run short
#     make fuzz FUZZ=...      which targets (CONTRIBUTING.md lists them); TIME=600 seconds for each
#     make sanitize SANITIZE=asan   a step of it (scripts/sanitize lists them)
#     make install            PREFIX=/usr/local, DESTDIR= for packagers; builds nothing, so that it can be run as root

CARGO ?= cargo
TOUR ?=
REPORT ?=
TEST ?= --workspace
SEED ?= 1
CASES ?= 20000
SEEDS ?= 10000
SIW ?=
BENCH ?=
FUZZ ?= all
TIME ?= 60
SANITIZE ?=
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
BUILT ?= $(TARGET)/release
BASH_COMPLETIONS ?= $(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS ?= $(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS ?= $(PREFIX)/share/fish/vendor_completions.d

.DEFAULT_GOAL := help
.PHONY: help check tour report pictures verbs install deb test properties soak test-siw bench fuzz sanitize lint portable format clippy deny doc book house

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

check: ## Check a change with nothing but Rust: format, clippy, the quick tests (two minutes after a build)
	@scripts/need cargo rustfmt clippy
	@CARGO='$(CARGO)' PROPTEST_RNG_SEED=$(SEED) scripts/check

tour: ## Walk through what kiban can do
	@scripts/need cargo gcc
	@$(CARGO) build --release --locked -p kiban
	@$(CARGO) run --release --locked -q -p kiban -- tour $(TOUR)

report: ## Make the five papers again and write kiban-report.html (REPORT=--quick; docs/reproduce.md)
	@scripts/need cargo gcc
	@$(CARGO) build --release --locked -p kiban
	@$(TARGET)/release/kiban reproduce all $(REPORT) || [ $$? -eq 1 ]

pictures: ## Renew the README's pictures and the kept tables of kiban reproduce all; then look at the difference
	@scripts/need cargo gcc
	KIBAN_KEEP_SNAPSHOTS=1 $(CARGO) test --locked -p kiban --test report kept readmes

verbs: ## Build the libraries that run RDMA programs without RDMA hardware, into target/release/verbs
	@scripts/need cargo gcc
	@$(CARGO) build --release --locked -p kiban
	@$(CARGO) rustc --release --locked -p kiban-verbs --lib --crate-type staticlib
	@crates/verbs/link $(BUILT)/libkiban_verbs.a $(BUILT)/verbs
	@objcopy --only-keep-debug '$(BUILT)/kiban' '$(BUILT)/kiban.debug'

install: ## Install the program, the libraries, manual pages and completions (PREFIX, DESTDIR); first make verbs
	@for file in kiban verbs/libibverbs.so.1 verbs/librdmacm.so.1 verbs/libkiban_paths.so verbs/librspreload.so \
		verbs/libkiban_sockets.so; do \
		[ -f "$(BUILT)/$$file" ] || { echo "make: $(BUILT)/$$file is missing: run 'make verbs' first" >&2; exit 1; }; \
	done
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/lib/kiban' '$(DESTDIR)$(PREFIX)/share/man/man1' \
		'$(DESTDIR)$(BASH_COMPLETIONS)' '$(DESTDIR)$(ZSH_COMPLETIONS)' '$(DESTDIR)$(FISH_COMPLETIONS)'
	install -s -m 755 '$(BUILT)/kiban' '$(DESTDIR)$(PREFIX)/bin/kiban'
	@# gdb and perf find the symbols, which stay in $(BUILT), by name and checksum.
	[ ! -f '$(BUILT)/kiban.debug' ] || \
		objcopy --add-gnu-debuglink='$(BUILT)/kiban.debug' '$(DESTDIR)$(PREFIX)/bin/kiban'
	install -s -m 755 '$(BUILT)/verbs/libibverbs.so.1' '$(BUILT)/verbs/librdmacm.so.1' \
		'$(BUILT)/verbs/libkiban_paths.so' '$(BUILT)/verbs/librspreload.so' '$(BUILT)/verbs/libkiban_sockets.so' \
		'$(DESTDIR)$(PREFIX)/lib/kiban'
	'$(BUILT)/kiban' man '$(DESTDIR)$(PREFIX)/share/man/man1'
	'$(BUILT)/kiban' completions bash > '$(DESTDIR)$(BASH_COMPLETIONS)/kiban'
	'$(BUILT)/kiban' completions zsh > '$(DESTDIR)$(ZSH_COMPLETIONS)/_kiban'
	'$(BUILT)/kiban' completions fish > '$(DESTDIR)$(FISH_COMPLETIONS)/kiban.fish'

deb: verbs ## Make a Debian package of the same, in target/release
	@scripts/deb '$(BUILT)' '$(BUILT)'

test: ## Run all tests; names the Debian packages that are missing, and installs them if it runs as root
	@scripts/need cargo gcc g++ iproute2 tshark libibverbs-dev librdmacm-dev ibverbs-utils rdmacm-utils perftest qperf \
		libfabric-bin ucx-utils python3-pyverbs rdma-core openmpi-bin python3-mpi4py nodejs npm parallel \
		default-jdk-headless maven chromium curl iperf3 iputils-ping python3 strace systemd
	PROPTEST_RNG_SEED=$(SEED) $(CARGO) test --locked $(TEST)

properties: SEED = $(shell date +%s)
properties: ## Search longer for what breaks a property, from a new seed: CASES=20000 (some take minutes)
	@scripts/need cargo gcc
	@echo "make properties SEED=$(SEED) CASES=$(CASES)"
	PROPTEST_RNG_SEED=$(SEED) PROPTEST_CASES=$(CASES) $(CARGO) test --locked --no-fail-fast \
		-p kiban-base -p kiban-tcpip -p kiban-atm -p kiban-rdma -p kiban-vi -p kiban-osi -p kiban-capture -p kiban-board

# Only what was said here: SEED and TIME have defaults of other targets.
said = $(if $(filter command environment,$(firstword $(origin $(1)))),$($(1)))

soak: ## Let system calls fail, fall short or stall: SEEDS=10000, or TIME=600 seconds a scenario; SEED=17 for one
	@scripts/need cargo gcc libibverbs-dev librdmacm-dev
	KIBAN_SOAK_SEED=$(call said,SEED) KIBAN_SOAK_TIME=$(call said,TIME) \
		KIBAN_SOAK_SEEDS=$(if $(call said,TIME),$(filter-out 10000,$(SEEDS)),$(SEEDS)) \
		$(CARGO) test --locked -p kiban --test faults -- --nocapture

test-siw: ## Connect with soft-iWARP of a Linux kernel in QEMU, both ways (docs/siw.md)
	@scripts/need cargo gcc
	@scripts/siw/test $(SIW)

bench: verbs ## Measure against targets and other stacks; records go to target/bench
	@scripts/need cargo gcc iproute2
	$(CARGO) run --release --locked -p kiban-bench -- $(BENCH)

fuzz: ## Search for hostile input that breaks a promise; FUZZ=session, TIME=600 (targets: CONTRIBUTING.md)
	@scripts/need cargo g++
	@scripts/fuzz $(FUZZ) $(TIME)

sanitize: ## Look for memory errors, leaks and data races: Miri, ASAN, TSAN, valgrind (SANITIZE=asan for one)
	@scripts/need cargo gcc
	@scripts/sanitize $(SANITIZE)

lint: format clippy deny doc house ## Check format, code, dependencies, documentation and structure

format: ## Check the format alone (cargo fmt repairs it)
	@scripts/need cargo rustfmt
	$(CARGO) fmt --all --check

clippy: ## Check the code alone
	@scripts/need cargo clippy gcc
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

deny: ## Check licences, origins and advisories of dependencies alone
	@scripts/need cargo gcc cargo-deny
	$(CARGO) deny --locked check licenses bans sources
	@scripts/advisories

house: ## Check what each crate may compile, import cycles of files, links of the documentation, and its language
	@scripts/need cargo python3
	@CARGO='$(CARGO)' scripts/boundaries
	@scripts/circles
	@scripts/links
	@scripts/prose

PORTABLE := base tcpip atm rdma vi osi capture attach board sim talk
TARGETS ?= x86_64-pc-windows-gnu x86_64-apple-darwin
portable: ## Compile the crates without operating system calls for Windows and macOS (rustup target add ...)
	@scripts/need cargo
	@for target in $(TARGETS); do \
		echo "$(CARGO) check for $$target"; \
		$(CARGO) check --locked $(PORTABLE:%=-p kiban-%) --target $$target || exit 1; \
	done

doc: ## Build the documentation of all crates, without warnings
	@scripts/need cargo gcc
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked

book: ## Make a book of the pages in docs, in target/book
	@scripts/need cargo gcc mdbook
	mdbook build --dest-dir '$(abspath $(TARGET))/book'
