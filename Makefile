# Bellwire: `make` alone explains. Everything here also works by hand; nothing needs root but `deps`, and only when a
# package is missing.

.DEFAULT_GOAL := help
# Node, where the system's is missing or too old: `deps` puts it there.
export PATH := $(CURDIR)/.deps/node/bin:$(PATH)
.PHONY: help demo run test test-lanes test-recipes test-api test-upgrade test-packages lint bench fuzz sqlx deb release image pictures web sdk admin clients deps

help: ## Explain the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: deps web ## Deliver a campaign to 10,000 simulated browsers and check the account; KEEP=1 leaves the server up
	cargo run --locked --bin bellwire -- demo $(if $(KEEP),--keep)

run: deps web ## Start the real server with a Postgres of its own
	cargo run --locked --bin bellwire -- serve

# What `npm test` does but for the build, which would have cargo embed the same once more. Rust is linted as it is compiled.
test: deps web clients $(addsuffix /node_modules/.package-lock.json,tests/clients examples/node-backend examples/react-site examples/recipes/vite) ## Check style, then run all tests, those in Firefox and Chromium included
	cargo fmt --all --check
	scripts/format --check
	scripts/words
	node --test tests/words/words.test.mjs
	tests/install-deps
	cd static/sdk && npm run check && npm exec vitest run
	cd static/admin && npm run check && npm exec vitest run
	cargo test --locked --workspace --all-targets --no-run
	scripts/test
test: NEEDS = --test
test: export RUSTC_WORKSPACE_WRAPPER = $(CURDIR)/scripts/strict-rustc

lint: web ## Check formatting and language, let clippy complain, and check dependencies against deny.toml
	cargo fmt --all --check
	scripts/format --check
	scripts/words
	node --test tests/words/words.test.mjs
	scripts/install-deps --lint
	scripts/deny
	cargo clippy --locked --workspace --all-targets -- -D warnings
	for crate in crates/*/; do cargo check --quiet --locked -p "$$(basename "$$crate")" || exit; done # each without the features of others

bench: deps web ## Measure what docs/scale.md quotes
	scripts/bench

# `make test` compares some thousand agreements with AWS-LC, this a million in plain Rust, which takes a quarter of an hour, and a million by
# AVX-512 IFMA where the processor has it. Then it times passes for dependence on secrets.
test-lanes: ## Test what seals eight payloads at a time at length, and time it for dependence on secrets; AGREEMENTS=1000000
	AGREEMENTS=$(or $(AGREEMENTS),1000000) cargo test --release --locked -p bellwire-p256-lanes
	cargo run --release --locked -p bellwire-p256-lanes --example constant_time
	cargo run --release --locked -p bellwire-p256-lanes --example speed

RECIPES ?= $(notdir $(patsubst %/,%,$(wildcard examples/recipes/*/)))
recipe_packages = $(patsubst %package.json,%node_modules/.package-lock.json,$(wildcard $(RECIPES:%=examples/recipes/%/package.json)))
test-recipes: deps web $(recipe_packages) ## Build the recipes for frameworks, and drive them in Firefox and Chromium; RECIPES="next nuxt"
	RECIPES="$(RECIPES)" cargo test --locked --test it browser::recipes::
test-recipes: NEEDS = --test

test-api: web ## Send what schemathesis makes up to a server: no 5xx, nothing that is not described; SECONDS_MAX=300
	scripts/test-api

test-upgrade: deps web ## Run a server of the last release and one of this version side by side
	scripts/test-upgrade

fuzz: web ## Search for inputs that break the parsers of policies; SECONDS_EACH=60, one core
	scripts/fuzz

sqlx: deps web ## Refresh .sqlx after a change of SQL or migrations
	scripts/prepare-sqlx

deb: web clients ## Make a Debian package; PROFILE=dev for one that is built quickly
	scripts/package deb

release: web clients ## Make a static program with what belongs to it, and lists of what is in it (SBOM)
	scripts/package release

image: ## Build the container, by podman or docker
	$(shell command -v podman || echo docker) build --tag bellwire --file Containerfile .

test-packages: web ## Install, upgrade and remove the Debian package in a system of its own, as root; PROFILE=dev
	tests/packages

pictures: deps web ## Take the pictures of the admin page in docs/pictures, from the demo
	cargo build --locked --bin bellwire
	scripts/pictures
pictures: NEEDS = --test

web: sdk admin clients/dist/bellwire-server.tgz ## Build what browsers and Node backends load, which the server embeds

sdk: static/sdk/dist/bellwire-web.tgz

admin: static/admin/dist/index.html

# The generator for Python is fetched from PyPI, which `make web` does not need. The server embeds the packages that exist.
version := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
wheel = clients/dist/bellwire-$(version)-py3-none-any.whl
clients: clients/dist/bellwire-server.tgz $(wheel) ## Build the packages for backends, the one for Python included

# The package, which is written last, has the server's version.
static/sdk/dist/bellwire-web.tgz: static/sdk/node_modules/.package-lock.json $(wildcard static/sdk/*.mjs static/sdk/tsconfig*.json) \
		static/sdk/README.md $(wildcard static/sdk/LICENSE LICENSE-*) Cargo.toml $(shell find static/sdk/src -type f)
	cd static/sdk && npm run build

static/sdk/node_modules/.package-lock.json: static/sdk/package.json static/sdk/package-lock.json | deps
	cd static/sdk && npm ci --no-audit --no-fund

clients/dist/bellwire-server.tgz: clients/typescript/node_modules/.package-lock.json $(wildcard LICENSE-*) \
		$(addprefix clients/typescript/,build.mjs tsconfig.json src/index.ts README.md LICENSE) static/admin/src/api/schema.d.ts Cargo.toml
	cd clients/typescript && npm run build

clients/typescript/node_modules/.package-lock.json: clients/typescript/package.json clients/typescript/package-lock.json | deps
	cd clients/typescript && npm ci --no-audit --no-fund

$(wheel): static/openapi.json $(addprefix clients/python/,build.py pyproject.toml README.md LICENSE src/bellwire/__init__.py) \
		$(wildcard LICENSE-*) tests/clients/requirements.txt Cargo.toml | deps
	scripts/install-deps --clients
	PYTHONPATH=$(CURDIR)/.deps/python python3 clients/python/build.py

static/admin/dist/index.html: static/admin/node_modules/.package-lock.json $(wildcard static/admin/*.mjs) static/admin/tsconfig.json \
		static/admin/index.html $(shell find static/admin/src static/admin/public static/shared -type f)
	cd static/admin && npm run build

static/admin/node_modules/.package-lock.json: static/admin/package.json static/admin/package-lock.json | deps
	cd static/admin && npm ci --no-audit --no-fund

tests/clients/node_modules/.package-lock.json: tests/clients/package.json tests/clients/package-lock.json | deps
	cd tests/clients && npm ci --no-audit --no-fund

# With what builds them.
examples/recipes/%/node_modules/.package-lock.json: examples/recipes/%/package.json examples/recipes/%/package-lock.json | deps
	cd examples/recipes/$* && npm ci --no-audit --no-fund

# Only what they run on: tests build them with the tools that are there already.
examples/%/node_modules/.package-lock.json: examples/%/package.json examples/%/package-lock.json | deps
	cd examples/$* && npm ci --omit=dev --no-audit --no-fund

deps: ## Install what is missing (Debian and relatives), or say what to install
	@scripts/install-deps $(NEEDS)
