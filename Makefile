# SPDX-License-Identifier: GPL-2.0
# What a person types. Kbuild reads the file Kbuild, not this one.
#
# KDIR=FOLDER builds for another kernel's prepared tree, with the host's tools.

.DEFAULT_GOAL := help
export KDIR

help: ## list the targets
	@sed -n 's/^\([a-z_.-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: ## two machines exchange data over TCP, RDMA and SDP; ends in tables and a picture
	@scripts/demo

# `make test WITHIN=MINUTES` skips the tests for which no time is left.
within = $(if $(WITHIN),--within $(WITHIN))

test: ## the tests: checks, host, KUnit, machines on the stock and the debug kernel
	@scripts/test core $(within)

test-all: ## every test on every kernel, with one machine and with two; takes hours
	@scripts/test all $(within)

check: ## lints, formats, types, warnings and host tests; no machines
	@scripts/check

kunit: ## only the module's KUnit suites, on the debug kernel
	@scripts/vmtest debug --one kunit

vmtest: ## all tests in machines, on the stock kernel
	@scripts/vmtest stock

abuse: ## 100,000 sends of memory that threads do everything to; takes long
	@scripts/vmtest stock --one --scale 50 selftest.azabuse/small_pages selftest.azabuse/huge_pages

# `make bench PART` measures that part alone: `make bench figures`, the papers' figures; `make bench apps`,
# the papers' applications.
ifeq ($(firstword $(MAKECMDGOALS)),bench)
parts := $(filter raw sizes modes crossover setup connections many counters memory instructions figures apps \
	where locks statistics,$(MAKECMDGOALS))
.PHONY: $(parts)
$(parts): bench ; @:
endif

bench: ## rates, latencies, counters and memory side by side; `make bench figures`, `make bench apps`: the papers'
	@scripts/bench $(parts)

modules: ## build rust/ib_sdp.ko for this machine's kernel
	@scripts/module here

tools: ## build sdpctl, libsdp.so, man pages and completions, in tools/target/sdpctl
	@scripts/sdpctl

deb: ## Debian packages in deb/: the module's source for dkms, sdpctl
	@scripts/sdpctl
	@scripts/deb

deb-check: ## install the packages in a clean Debian, load what dkms built; 10 minutes
	@scripts/debcheck

install: ## install rust/ib_sdp.ko and sdpctl (as root, after `make modules tools`)
	@scripts/install

modules_install: ## the same as install
	@scripts/install

rust-project.json: ## project file for rust-analyzer
	@scripts/rust-project

clean: ## remove what was built in the checkout
	@find . -path ./.git -prune -o \( -name '*.o' -o -name '*.ko' -o -name '*.mod' -o -name '*.mod.c' \
		-o -name '.*.cmd' -o -name '.module-common.o' -o -name modules.order -o -name Module.symvers \
		-o -name __pycache__ -o -path ./rust/bindings/generated -o -path ./tools/target -o -path ./deb -o -name rust-project.json \) \
		-prune -exec rm -rf {} +

distclean: clean ## clean, and remove the cache folder (root, kernels, builds, logs)
	@scripts/distclean

.PHONY: help demo test test-all check kunit vmtest abuse bench modules tools deb deb-check install modules_install rust-project.json clean distclean
