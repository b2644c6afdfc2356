# Bellwire: `make` alone explains. Everything here also works by hand; nothing needs root but `deps`, and only when a
# package is missing.

.DEFAULT_GOAL := help
.PHONY: help demo run test lint bench fuzz sqlx deps

help: ## Explain the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: deps ## Deliver a campaign to 10,000 simulated browsers and check the account; KEEP=1 leaves the server up
	cargo run --release --locked --bin bellwire -- demo $(if $(KEEP),--keep)

run: deps ## Start the real server with a Postgres of its own
	cargo run --release --locked --bin bellwire -- serve

test: deps lint ## Check style, then run all tests
	cargo test --locked

lint: ## Check formatting, and let clippy complain
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings

bench: deps ## Measure what the README quotes
	scripts/bench

fuzz: ## Search for inputs that break the parsers of policies; SECONDS_EACH=60, one core
	scripts/fuzz

sqlx: deps ## Refresh .sqlx after a change of SQL or migrations
	scripts/prepare-sqlx

deps: ## Install what is missing (Debian and relatives), or say what to install
	@scripts/install-deps
