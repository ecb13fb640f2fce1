# The targets for users and developers. Each checks that the tools it needs are present (scripts/need) and names missing ones.
#
#     make check              the checks that a change has to pass first; needs only Rust and a C compiler
#     make tour TOUR=...      arguments for the tour
#     make report REPORT=...  --quick, --exact, --html FILE
#     make test TEST=...      arguments for cargo test, for example TEST='-p kiban-atm aal5'
#     make properties         CASES=20000 for each property, SEED= for the generator (make test uses a fixed seed)
#     make soak               SEEDS=10000, or TIME=600 seconds per test, half of it for the n-th calls; SEED=17 repeats one
#     make test-siw SIW=...   one case, or --if-available: skip the test if QEMU cannot run a guest (docs/siw.md)
#     make test-rxe RXE=...   likewise; --quick for the most important cases (docs/roce.md)
#     make test-qemu QEMU=... likewise (docs/net.md)
#     make bench BENCH=...    arguments for the benchmarks; KIBAN_BENCH_QUICK=1 makes the run short
#     make fuzz FUZZ=...      the targets to run (CONTRIBUTING.md lists them); TIME=600 seconds for each
#     make sanitize SANITIZE=asan   one step (scripts/sanitize lists them)
#     make install            PREFIX=/usr/local, DESTDIR= for packagers; builds nothing, so it can run as root

CARGO ?= cargo
TOUR ?=
REPORT ?=
TEST ?= --workspace
SEED ?= 1
CASES ?= 20000
SEEDS ?= 10000
SIW ?=
IMAGE ?=
RXE ?=
QEMU ?=
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
.PHONY: help check tour report pictures verbs install deb wheel test-wheel test properties soak test-image test-siw test-rxe test-qemu test-containers test-programs bench fuzz sanitize lint portable format clippy deny doc book house package

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

check: ## Check format and clippy and run the quick tests; needs only Rust and a C compiler (two minutes after a build)
	@scripts/need cargo rustfmt clippy
	@CARGO='$(CARGO)' PROPTEST_RNG_SEED=$(SEED) scripts/check

tour: ## Walk through what kiban can do
	@scripts/need cargo gcc
	@$(CARGO) build --release --locked -p kiban
	@$(CARGO) run --release --locked -q -p kiban -- tour $(TOUR)

report: ## Reproduce the five papers and write kiban-report.html (REPORT=--quick; docs/reproduce.md)
	@scripts/need cargo gcc
	@$(CARGO) build --release --locked -p kiban
	@$(TARGET)/release/kiban reproduce all $(REPORT)

pictures: ## Renew the README's pictures and the kept tables of kiban reproduce all; then look at the difference
	@scripts/need cargo gcc python3
	KIBAN_KEEP_SNAPSHOTS=1 $(CARGO) test --locked -p kiban --test report -- snapshot readme
	@scripts/picture

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
	@# The names by which container engines start a network (docs/net.md).
	ln -sf ../../bin/kiban '$(DESTDIR)$(PREFIX)/lib/kiban/pasta'
	ln -sf ../../bin/kiban '$(DESTDIR)$(PREFIX)/lib/kiban/slirp4netns'
	'$(BUILT)/kiban' man '$(DESTDIR)$(PREFIX)/share/man/man1'
	'$(BUILT)/kiban' completions bash > '$(DESTDIR)$(BASH_COMPLETIONS)/kiban'
	'$(BUILT)/kiban' completions zsh > '$(DESTDIR)$(ZSH_COMPLETIONS)/_kiban'
	'$(BUILT)/kiban' completions fish > '$(DESTDIR)$(FISH_COMPLETIONS)/kiban.fish'

test-wheel: wheel ## Install the wheel in a Debian 11 made with debootstrap, and run its verbs programs; needs root
	@scripts/need debootstrap
	@scripts/wheel-root '$(TARGET)'/wheel/kiban-*.whl '$(TARGET)/wheel-root'

deb: verbs ## Build a Debian package of the same files, in target/release
	@scripts/deb '$(BUILT)' '$(BUILT)'

test-image: ## Build the Dockerfile's image without Docker, and run verbs programs in it (IMAGE= options of buildah); needs root
	@scripts/need cargo buildah debootstrap
	@scripts/image '$(TARGET)/image' $(IMAGE)

wheel: ## Build a wheel for pip with the same files, for Linux with glibc 2.28 and later, in target/wheel
	@scripts/need cargo gcc python3-venv
	@built=$$(scripts/manylinux '$(TARGET)/manylinux') && \
		PYTHON='$(TARGET)/manylinux/tools/bin/python' scripts/wheel "$$built" '$(TARGET)/wheel' manylinux_2_28_x86_64

test: ## Run all tests; names the Debian packages that are missing, and installs them if it runs as root
	@scripts/need cargo gcc g++ iproute2 nftables tshark libibverbs-dev librdmacm-dev ibverbs-utils rdmacm-utils perftest qperf \
		libfabric-bin ucx-utils python3-pyverbs rdma-core openmpi-bin python3-mpi4py nodejs npm parallel \
		default-jdk-headless maven chromium curl bind9-dnsutils iperf3 iputils-ping openssh-client openssh-server python3 python3-venv strace systemd \
		qemu-system-x86 dnsmasq-base busybox-static isc-dhcp-client
	@scripts/prometheus '$(TARGET)/prometheus'
	KIBAN_PROMETHEUS='$(abspath $(TARGET))/prometheus/usr/bin/prometheus' \
		PROPTEST_RNG_SEED=$(SEED) $(CARGO) test --locked --no-fail-fast $(TEST)

properties: SEED = $(shell date +%s)
properties: ## Run the property tests longer, from a new seed: CASES=20000 (some take minutes)
	@scripts/need cargo gcc
	@echo "make properties SEED=$(SEED) CASES=$(CASES)"
	PROPTEST_RNG_SEED=$(SEED) PROPTEST_CASES=$(CASES) $(CARGO) test --locked --no-fail-fast \
		-p kiban-base -p kiban-tcpip -p kiban-atm -p kiban-rdma -p kiban-vi -p kiban-osi -p kiban-capture -p kiban-board

# A variable only if the user set it: SEED and TIME have defaults that are meant for other targets.
said = $(if $(filter command environment,$(firstword $(origin $(1)))),$($(1)))

soak: ## Inject failing, short and stalled system calls, and simulate RoCE worlds: SEEDS=10000, or TIME=600 seconds per scenario; SEED=17 for one
	@scripts/need cargo gcc libibverbs-dev librdmacm-dev iproute2 python3
	KIBAN_SOAK_SEED=$(call said,SEED) KIBAN_SOAK_SEEDS=$(SEEDS) \
		$(CARGO) test --locked -p kiban-sim --test nics impaired_roce_worlds -- --nocapture
	KIBAN_SOAK_SEED=$(call said,SEED) KIBAN_SOAK_TIME=$(call said,TIME) \
		KIBAN_SOAK_SEEDS=$(if $(call said,TIME),$(filter-out 10000,$(SEEDS)),$(SEEDS)) \
		$(CARGO) test --locked -p kiban --test faults -- --nocapture
	KIBAN_SOAK_SEED=$(call said,SEED) KIBAN_SOAK_TIME=$(or $(call said,TIME),600) \
		$(CARGO) test --locked -p kiban --test guest hostile -- --nocapture

test-programs: verbs ## Run AI transfer engines from PyPI, unmodified, over RDMA (Mooncake, NIXL, DLSlime, InfiniStore)
	@scripts/need python3
	@scripts/programs/run '$(BUILT)/kiban' '$(TARGET)/programs'

test-containers: verbs ## Run containers of an ordinary user over kiban net: rootless Podman and Buildah, without pulling images
	@scripts/need podman buildah runc slirp4netns uidmap busybox-static debootstrap curl iproute2 python3
	@scripts/containers '$(BUILT)/kiban' '$(TARGET)/containers'

test-siw: ## Connect with soft-iWARP of a Linux kernel in QEMU, in both directions (docs/siw.md)
	@scripts/need cargo gcc
	@scripts/guest/test siw $(SIW)

test-rxe: ## Speak RoCEv2 with rdma_rxe of a Linux kernel in QEMU, in both directions (docs/roce.md)
	@scripts/need cargo gcc
	@scripts/guest/test rxe $(RXE)

test-qemu: ## Boot a virtual machine on the network of kiban net, which gives it its addresses (docs/net.md)
	@scripts/need cargo gcc python3
	@scripts/guest/test net $(QEMU)

ifeq ($(BENCH),socks5)
# The other stacks are dependencies of a workspace of its own.
bench:
	@scripts/need cargo gcc iproute2
	$(CARGO) build --release --locked --manifest-path examples/socks5/Cargo.toml --target-dir '$(TARGET)/socks5'
	'$(TARGET)/socks5/release/compare' $(if $(KIBAN_BENCH_QUICK),1 1)
else ifeq ($(BENCH),explain)
# Connections with known causes, by the simulator and by the kernel's TCP, which needs root.
bench:
	@scripts/need cargo gcc iproute2 python3 tshark tcptrace
	mkdir -p '$(TARGET)/explain/simulated'
	KIBAN_EXPLAIN_EACH=$(if $(KIBAN_BENCH_QUICK),12,24) KIBAN_EXPLAIN_KEEP='$(abspath $(TARGET)/explain/simulated)' \
		$(CARGO) test --locked -p kiban-explain --test simulated -- --nocapture
	KIBAN_EXPLAIN_EACH=24 $(CARGO) test --locked -p kiban-explain --test roce -- --nocapture
	python3 crates/explain/tests/kernel/captures.py '$(TARGET)/explain/kernel' $(if $(KIBAN_BENCH_QUICK),1,24)
	KIBAN_EXPLAIN_CAPTURES='$(abspath $(TARGET)/explain/kernel)' \
		$(CARGO) test --locked -p kiban-explain --test kernel -- --ignored --nocapture
	@for tool in tshark tcptrace; do for origin in simulated kernel; do echo "$$tool, $$origin:" && \
		python3 crates/explain/tests/tools.py $$tool "$(TARGET)/explain/$$origin" || exit 1; done; done
else
bench: verbs ## Measure against targets and other stacks; records go to target/bench (BENCH=net: kiban net; BENCH=shards: boards on two cores, with Go also gVisor; BENCH=socks5: crates for tokio)
	@scripts/need cargo gcc iproute2 $(if $(filter net,$(BENCH)),passt slirp4netns iperf3)
	@# Without Go, the rows with gVisor are skipped.
	@$(if $(filter shards,$(BENCH)),scripts/need golang-go || true)
	$(CARGO) run --release --locked -p kiban-bench -- $(BENCH)
endif

fuzz: ## Fuzz decoders and protocol machines; FUZZ=session, TIME=600 (targets: CONTRIBUTING.md)
	@scripts/need cargo g++
	@scripts/fuzz $(FUZZ) $(TIME)

sanitize: ## Find memory errors, leaks and data races: Miri, ASAN, TSAN, valgrind (SANITIZE=asan for one)
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

house: ## Check what each crate may compile, import cycles of files; links, language and made parts of the pages
	@scripts/need cargo python3
	@CARGO='$(CARGO)' scripts/boundaries
	@scripts/circles
	@scripts/links
	@scripts/prose
	@scripts/picture --check
	@scripts/counters --check

# Crates that do not say `publish.workspace = true`: those that can be published.
LIBRARIES = $(filter-out $(shell grep -l '^publish.workspace' crates/*/Cargo.toml),$(wildcard crates/*/Cargo.toml))
package: ## Package the libraries as for crates.io, and build each from its package
	@scripts/need cargo gcc
	$(CARGO) package --locked $(LIBRARIES:crates/%/Cargo.toml=-p kiban-%)

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

book: ## Build a book from the pages in docs, in target/book
	@scripts/need cargo gcc mdbook
	mdbook build --dest-dir '$(abspath $(TARGET))/book'
