# The front door. Every target makes sure of what it needs (scripts/need) and says what is missing if it cannot.
#
#     make tour TOUR=...      arguments for the tour
#     make test TEST=...      arguments for cargo test, for example TEST='-p kiban-wire aal5'
#     make bench BENCH=...    arguments for the benchmarks; KIBAN_BENCH_QUICK=1 makes the run short
#     make fuzz FUZZ=...      which targets (CONTRIBUTING.md lists them); TIME=600 seconds for each

CARGO ?= cargo
TOUR ?=
TEST ?= --workspace
BENCH ?=
FUZZ ?= all
TIME ?= 60

.DEFAULT_GOAL := help
.PHONY: help tour test bench fuzz lint format clippy deny doc

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

tour: ## Walk through what kiban can do
	@scripts/need cargo gcc
	@$(CARGO) build --release --locked -p kiban
	@$(CARGO) run --release --locked -q -p kiban -- tour $(TOUR)

test: ## Run all tests
	@scripts/need cargo gcc g++ iproute2 tshark
	$(CARGO) test --locked $(TEST)

bench: ## Measure against targets and other stacks; records go to target/bench
	@scripts/need cargo gcc
	$(CARGO) run --release --locked -p kiban-bench -- $(BENCH)

fuzz: ## Search for hostile input that breaks a promise; FUZZ=session, TIME=600 (targets: CONTRIBUTING.md)
	@scripts/need cargo g++
	@scripts/fuzz $(FUZZ) $(TIME)

lint: format clippy deny doc ## Check format, code, dependencies and documentation

format: ## Check the format alone (cargo fmt repairs it)
	@scripts/need cargo rustfmt
	$(CARGO) fmt --all --check

clippy: ## Check the code alone
	@scripts/need cargo clippy gcc
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

deny: ## Check licences and origins of dependencies alone
	@scripts/need cargo gcc cargo-deny
	$(CARGO) deny --locked check licenses bans sources

doc: ## Build the documentation of all crates, without warnings
	@scripts/need cargo gcc
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked
