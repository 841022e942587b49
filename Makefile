# `make demo` and `make test` work on a fresh machine. They install what they need: Python packages
# into .venv, locked by hash, and Debian packages if root or sudo is available.

VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
SYNCED := $(VENV)/.synced
# This machine's list of authorities, with that of a proxy that signs by itself. Older pips have a list
# of their own; pyproject.toml tells uv.
AUTHORITIES := $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt))
PACKAGES := systemd mosquitto mosquitto-clients iperf3 iputils-ping iproute2 ethtool openssl procps
# What runs pods on the lab's boards, beside what `make kubelets` builds.
CONTAINERS := runc containernetworking-plugins docker-registry busybox-static socat util-linux
# What the tests of the map draw it with.
BROWSER := chromium fonts-dejavu-core
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
# Where Ansible finds leadline.edge. It finds its own collections by itself.
COLLECTIONS := $(VENV)/collections
PYTEST := $(PY) -m pytest
# More than there are cores, because some tests wait.
WORKERS := $(shell echo $$(($$(nproc) * 2)))
# For the tests that only compute.
CORES := $(shell nproc)
# Hypothesis' profile, of tests/conftest.py: how many examples a test is tried with.
EXAMPLES := leadline
PARTS := broker or network or cluster or registry or package or prometheus or browser
SLOW := $(PARTS) or slow or experiment or rollout or keda or home_assistant or chart
# What names the release; `make version` writes it.
VERSIONED := pyproject.toml agent/pyproject.toml agent/flows/pyproject.toml controller/pyproject.toml controller/experiments/pyproject.toml \
	controller/lab/pyproject.toml proto/pyproject.toml agent/leadline_agent/__init__.py agent/flows/leadline_flows/__init__.py \
	controller/leadline_controller/__init__.py ansible/galaxy.yml CITATION.cff \
	controller/deploy/helm/leadline/Chart.yaml controller/deploy/kustomize/base/kustomization.yaml \
	controller/deploy/kustomize/agent/kustomization.yaml
TESTBED := systemd-container mmdebstrap debian-archive-keyring qemu-user-static binfmt-support openssh-client util-linux

# Without bytecode files, each worker and each process that a test starts compiles everything again:
# a third of the time of the unit tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env run rollout-env lock bundle image image-lock dist docs version proto lint mypy test test-all test-unit test-smoke test-experiments test-parts test-budget test-timing dacs-lab judge shop-lab test-roles test-rollout test-outage board-images attack bench day endurance endurance-real experiments predicates demo dashboards packages control-plane kubelets metrics-server kwok test-moves test-keda keda test-oldest test-kine test-chart helm test-home-assistant prometheus vendor screenshots clean settings reference

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

# Only root can build the lab, so only root gets its tools. Without root the demo plays its boards.
# KEEP=1 leaves it running, with the map in the browser, until Ctrl-C.
demo: env ## Show Leadline on this machine: agents measure, pods are placed and send data over the links
	@test -n "$(SUDO)" || $(MAKE) --no-print-directory packages || true
	@$(VENV)/bin/leadline lab run $(if $(KEEP),--keep)

run: env packages control-plane ## Run a controller to work against: with the map, 20 played boards and a local API server
	@$(PY) -m tests.support.run

# What is built and installed comes before the tests, and no test runs twice. With --jobs=2 the tests
# that compute run beside those of the parts, which mostly wait.
ifneq ($(filter test test-all,$(MAKECMDGOALS)),)
test-unit: | packages control-plane
test-smoke: | test-unit
endif
ifneq ($(filter test-all,$(MAKECMDGOALS)),)
test-unit: | prometheus kubelets metrics-server kwok
test-experiments test-parts test-rollout: | test
test-all: RUN_BEFORE := or smoke
endif

test: PACKAGES += $(BROWSER)
test: env packages control-plane test-unit test-smoke ## Run what a change most often breaks, on real parts
	@$(if $(filter test-all,$(MAKECMDGOALS)),:,echo "Left out: most experiments and tests on real parts, and simulations; \`make test-all\` runs all of it.")

test-all: EXAMPLES := many
test-all: PACKAGES += $(CONTAINERS) $(BROWSER)
test-all: env packages prometheus kubelets metrics-server kwok test test-experiments test-parts ## Run all tests but those with a target of their own

test-unit: env ## Run the unit and contract tests
	$(PYTEST) -q -n $(WORKERS) --dist worksteal --hypothesis-profile=$(EXAMPLES) -m "not ($(SLOW))"

test-smoke: PACKAGES += $(BROWSER)
test-smoke: env packages control-plane ## Go one way through each real part: broker, links, API server, browser, the demo, an experiment
	$(SUDO) env PATH="$$PATH" $(PYTEST) -q -m smoke

# They compute and do not wait, so one worker for each core. Each experiment is one test.
test-experiments: env ## Run the papers' experiments in full, compare docs/experiments.md, simulate for long, and the slow unit tests
	nice -n 19 $(PYTEST) -q -n $(CORES) --dist worksteal -m "(experiment or slow) and not ($(PARTS) or rollout $(RUN_BEFORE))"

test-parts: PACKAGES += $(CONTAINERS) $(BROWSER)
test-parts: env packages prometheus kubelets metrics-server kwok ## Run the tests on a real broker, real links, a real API server and real kubelets
	$(SUDO) env PATH="$$PATH" $(PYTEST) -q -m "($(PARTS)) and not (rollout or keda $(RUN_BEFORE))"

# `make test-parts` runs the same tests for two minutes. All that runs beside them shares the boards' CPU.
test-budget: env packages control-plane ## Watch real links for ten minutes: what is known of them, and what it costs
	$(SUDO) env PATH="$$PATH" LINKS_LAB_MINUTES=10 $(PYTEST) -q -s tests/system/test_links_in_the_lab.py

# A busy machine may be later than what these assert, so `make test-parts` runs them without it.
test-timing: PACKAGES += $(CONTAINERS)
test-timing: env packages kubelets ## Check how soon a standby takes over, pulls end and the demo is done
	$(SUDO) env PATH="$$PATH" TIMED_TESTS=1 $(PYTEST) -q -s -n 0 tests/system/test_two_controllers.py tests/system/test_layers_in_the_lab.py tests/system/test_demo.py

# HIGH=3000 is the paper's high load.
dacs-lab: PACKAGES += $(CONTAINERS)
dacs-lab: env packages kubelets ## Run DACS' experiments on real kubelets for an hour, and print them beside the paper's
	$(SUDO) env PATH="$$PATH" $(PY) -m tests.system.dacs_report .dacs-lab --times 2 --high $(or $(HIGH),600)

# The runs stay in FOLDER, and one that is there is not run again.
judge: PACKAGES += $(CONTAINERS)
judge: env packages kubelets ## Let five strategies place pods on real kubelets, and see how well replays predict them; 40 minutes
	$(SUDO) env PATH="$$PATH" $(PY) -m tests.system.judge_lab $(or $(FOLDER),.judge)
	$(PY) -m tests.lab.replay.judged $(or $(FOLDER),.judge)

shop-lab: PACKAGES += $(CONTAINERS)
shop-lab: env packages kubelets ## Let schedulers place eleven services that call each other, over four networks, and see how long users wait
	$(SUDO) env PATH="$$PATH" $(PY) -m tests.system.shop_lab $(or $(FOLDER),.shop)

test-moves: env packages control-plane ## Move pods while much fails: 200 plans, and controllers killed at each step
	MOVES_PLANS=200 $(PYTEST) -q -s tests/controller/rescheduling/test_plans_with_failures.py tests/system/test_moves_killed.py

# In CI it is the first to install packages, for the images as well.
test-roles: PACKAGES += $(TESTBED)
test-roles: rollout-env packages ## Run the tests of the roles that need no machines
	$(SUDO) env PATH="$$PATH" $(PYTEST) -q -m rollout tests/roles

board-images: PACKAGES += $(TESTBED)
board-images: env packages ## Build the images of the boards for `make test-rollout`, once, into the cache folder
	@$(SUDO) env PATH="$$PATH" $(PY) -m tests.rollout.board_images >/dev/null

# The evidence stays in .rollout.
test-rollout: PACKAGES += $(TESTBED)
test-rollout: rollout-env packages control-plane board-images ## Roll out to a server and three boards that boot for it
	$(SUDO) env PATH="$$PATH" $(PYTEST) -q -m rollout tests/rollout

# `make test-rollout` runs the same tests with at least two minutes.
test-outage: PACKAGES += $(TESTBED)
test-outage: rollout-env packages control-plane board-images ## Be without a broker for ten minutes on boards that boot for it, freeze and restart
	$(SUDO) env PATH="$$PATH" BROKER_AWAY_MINUTES=10 $(PYTEST) -q -m rollout \
		tests/rollout/test_watchdog.py tests/rollout/test_reboot.py tests/rollout/test_broker_away.py

# To run one part: make attack PART=agent
attack: PACKAGES += $(TESTBED)
attack: rollout-env packages control-plane ## Attack the daemons at full length; the tests do it briefly
	$(SUDO) env PATH="$$PATH" $(PY) -m tests.attack $(PART)

bench: PACKAGES += prometheus-node-exporter $(BROWSER)
bench: env packages control-plane ## Measure speed and size, side by side in one run
	$(SUDO) env PATH="$$PATH" $(PY) -m tests.bench

day: env ## Simulate a whole day of 5,000 boards with all faults, half an hour of one core
	$(PY) -m tests.bench.day whole

endurance: env ## Simulate 72 hours of 200 boards with all that goes wrong, on one core
	$(PY) -m tests.endurance simulated

# MINUTES=10 for less time.
endurance-real: env packages control-plane ## Run 2 hours on a real broker and API server while everything goes away in turn
	$(PY) -m tests.endurance real --minutes $(or $(MINUTES),120)

experiments: env ## Run the papers' experiments and write docs/experiments.md
	rm -f docs/experiments/*
	$(VENV)/bin/leadline experiment all --plot docs/experiments
	$(PY) -m tests.docs.experiments

predicates: env control-plane ## Compare filters, preferences and preemption with kube-scheduler's, on many more cases than the tests
	$(PY) -m tests.kube.compare 3000
	$(PY) -m tests.kube.compare_scores 3000
	$(PY) -m tests.kube.compare_preemption 3000

lint: env rollout-env docs ## Check format, lint, types, import contracts, Ansible and the docs' links
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	@$(MAKE) --no-print-directory mypy
	$(VENV)/bin/lint-imports
	cd ansible && ../$(VENV)/bin/yamllint . && \
		PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ANSIBLE_COLLECTIONS_PATH=../$(COLLECTIONS) ansible-lint -q

mypy: env rollout-env ## Check the types
	$(VENV)/bin/mypy agent/leadline_agent agent/flows/leadline_flows controller/leadline_controller controller/experiments/leadline_experiments controller/lab/leadline_lab proto/leadline_wire ansible/bundle/leadline_bundle ansible/dashboards/leadline_dashboards tests
	cd ansible && ../$(VENV)/bin/mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache plugins

env: $(SYNCED) ## Build .venv

docs: $(SYNCED) ## Make a site of the docs, with search, in build/site
	@$(UV) pip install --quiet --python $(PY) --require-hashes -r requirements-docs.lock
	@$(PY) -m tests.docs.site

rollout-env: $(VENV)/.rollout ## Add Ansible and the collection leadline.edge to .venv

$(VENV)/.rollout: $(SYNCED) requirements-rollout.lock
	@$(UV) pip install --quiet --python $(PY) --require-hashes -r requirements-rollout.lock
	@mkdir -p $(COLLECTIONS)/ansible_collections/leadline
	@ln -sfn ../../../../ansible $(COLLECTIONS)/ansible_collections/leadline/edge
	@touch $@

$(SYNCED): pyproject.toml agent/pyproject.toml agent/flows/pyproject.toml controller/pyproject.toml controller/experiments/pyproject.toml controller/lab/pyproject.toml proto/pyproject.toml requirements.lock | $(UV)
	@$(UV) pip install --quiet --python $(PY) --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python $(PY) --no-deps -e proto -e agent -e agent/flows -e controller -e controller/experiments -e controller/lab
	@touch $@

$(UV):
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Leadline needs Python 3.11 or newer; this is $$(python3 --version)" >&2; exit 1; }
	@test -x $(PY) || python3 -m venv $(VENV) >/dev/null 2>&1 || \
		{ $(SUDO) apt-get install -y -q python3-venv >/dev/null && python3 -m venv --clear $(VENV); } || \
		{ echo "python3 -m venv does not work here: install python3-venv" >&2; exit 1; }
	@PIP_CERT="$${PIP_CERT:-$(AUTHORITIES)}" $(PY) -m pip install --quiet --disable-pip-version-check uv

packages: | $(SYNCED) ## Install the Debian packages that the tests need
	@missing=$$(for p in $(PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	test -z "$$missing" && exit 0; \
	if $(if $(SUDO),sudo -n,) true 2>/dev/null; then \
		$(SUDO) apt-get update -q >/dev/null && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -q $$missing >/dev/null; \
	else \
		echo "the tests need these Debian packages, and neither root nor sudo is there:" $$missing >&2; exit 1; \
	fi

# Its promtool checks metrics and alert rules. Masked while it is installed and disabled then, so
# that no server starts on this machine; nor node_exporter, which it recommends.
prometheus: | packages ## Install Debian's prometheus for the tests, without starting it
	@if dpkg -s prometheus >/dev/null 2>&1; then exit 0; fi; \
	if ! $(if $(SUDO),sudo -n,) true 2>/dev/null; then \
		echo "the tests need the Debian package prometheus, and neither root nor sudo is there" >&2; exit 1; \
	fi; \
	systemctl() { test ! -d /run/systemd/system || $(SUDO) systemctl --quiet "$$@"; }; \
	$(SUDO) apt-get update -q >/dev/null && systemctl mask --runtime prometheus && \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends prometheus >/dev/null && \
	systemctl disable prometheus; installed=$$?; systemctl unmask --runtime prometheus; exit $$installed

# The Go modules build once, in some minutes; the result stays in the user's cache folder.
keda: env kubelets ## Build KEDA's operator and metrics adapter for `make test-keda`
	@$(PY) -m tests.kube.keda

# Not in `make test-all`: from empty caches the build takes longer than all other tests of the cluster.
test-keda: PACKAGES += $(CONTAINERS)
test-keda: env packages keda kwok ## Have KEDA and the HPA controller scale a service by Leadline's answers
	$(SUDO) env PATH="$$PATH" $(PYTEST) -q -s -n 0 -m keda tests/kube/test_keda.py tests/lab/test_response_time.py

# The Go module builds once, in some minutes. The cases that Leadline's filters and preferences are
# compared on, and KEDA, need the newest.
test-oldest: export LEADLINE_TEST_KUBERNETES = oldest
test-oldest: env packages control-plane ## Run the tests of the cluster against the oldest Kubernetes that k3s maintains
	$(PYTEST) -q -m "cluster and not keda" tests/kube \
		--ignore=tests/kube/test_oracle.py --ignore=tests/kube/test_predicates.py --ignore=tests/kube/test_scores.py

# The Go module builds once, in some minutes. kine has SQLite, which is in C.
test-kine: PACKAGES += gcc libc6-dev
test-kine: export LEADLINE_TEST_STORE = kine
test-kine: env packages control-plane ## Run the tests of the API server on kine, k3s' own store, in place of etcd
	$(PYTEST) -q -m "cluster and not keda" tests/contracts tests/kube \
		--ignore=tests/kube/test_oracle.py --ignore=tests/kube/test_predicates.py --ignore=tests/kube/test_scores.py

# The package index is needed once, or again when its lock file changes.
test-home-assistant: env packages ## Have Home Assistant's MQTT integration read what a controller publishes
	@$(PY) -m tests.home_assistant.instance >/dev/null
	$(PYTEST) -q -s -n 0 -m home_assistant tests/home_assistant

# The Go module builds once, in some minutes.
helm: env kubelets ## Build Helm for `make test-chart`
	@$(PY) -m tests.chart.helm

# Not in `make test-all`: it builds the images twice, and from empty caches Helm.
test-chart: PACKAGES += $(CONTAINERS) binutils
test-chart: env packages helm ## Build the images, and install and upgrade the chart on real kubelets
	$(SUDO) env PATH="$$PATH" $(PYTEST) -q -n 0 -m chart tests/chart

control-plane: env ## Build etcd and kube-apiserver for the tests, unless they have a cluster
	@$(PY) -m tests.kube.control_plane find >/dev/null 2>&1 || \
		$(UV) pip install --quiet --python $(PY) --require-hashes -r requirements-go.lock
	@$(PY) -m tests.kube.control_plane build

kubelets: control-plane ## Build kubelet and containerd, for the tests and for `leadline lab up --kubelets`
	@$(PY) -m tests.kube.kubelets

metrics-server: control-plane ## Build metrics-server for the tests
	@$(PY) -m tests.kube.metrics_server

kwok: control-plane ## Build KWOK, which plays nodes in the tests
	@$(PY) -m tests.kube.kwok

lock: env ## Resolve the dependencies again into requirements*.lock
	$(UV) lock --upgrade
	$(UV) export --quiet --no-group bundle --no-group docs --no-group go --no-group release --no-group rollout --group dev --all-extras --no-emit-workspace --no-header --format requirements-txt -o requirements.lock
	$(UV) export --quiet --only-group go --no-emit-workspace --no-header --format requirements-txt -o requirements-go.lock
	$(UV) export --quiet --only-group bundle --no-emit-workspace --no-header --format requirements-txt -o requirements-bundle.lock
	$(UV) export --quiet --only-group docs --no-emit-workspace --no-header --format requirements-txt -o requirements-docs.lock
	$(UV) export --quiet --only-group release --no-emit-workspace --no-header --format requirements-txt -o requirements-release.lock
	$(UV) export --quiet --only-group rollout --no-emit-workspace --no-header --format requirements-txt -o requirements-rollout.lock
	$(UV) pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 tests/home_assistant/requirements.in -o requirements-home-assistant.lock
	for part in agent agent/flows controller; do \
		$(UV) export --quiet --package leadline-$${part##*/} --no-default-groups --no-emit-workspace --no-header --format requirements-txt -o $$part/requirements.lock || exit 1; \
	done

bundle: env ## Build dist/bundle: all that boards install, for a rollout without the internet
	@PYTHONPATH=ansible/bundle $(PY) -m leadline_bundle

image: env ## Build dist/image: OCI images of the controller, the agent and a broker, for amd64 and arm64
	@PYTHONPATH=ansible/bundle $(PY) -m leadline_bundle.image $(if $(APT_SOURCES),--apt-sources $(APT_SOURCES))

image-lock: env ## Take Debian's newest packages into the images: ansible/bundle/debian.lock
	@PYTHONPATH=ansible/bundle $(PY) -m leadline_bundle.image --lock $(if $(APT_SOURCES),--apt-sources $(APT_SOURCES))

# make version TO=1.2.3
version: ## Write another version wherever the release is named
	@: $${TO:?say which, as in TO=1.2.3}; sed -Ei 's/^( *_*(version|appVersion|newTag)_*(: | = )"?)[0-9.]+("?)$$/\1$(TO)\4/' $(VERSIONED)

# URL=https://... is where the owner will publish it; krew's manifest names it.
dist: env ## Build dist/release: checked wheels, bills of materials, the chart, and krew's plugin
	@PYTHONPATH=ansible/bundle $(PY) -m leadline_bundle.release $(if $(URL),--url $(URL))

vendor: ## Write the files of npm packages that the map and its tests use: needs npm
	python3 -m tests.web.vendoring

dashboards: env ## Write the Grafana dashboards of the role `grafana`
	PYTHONPATH=ansible/dashboards $(PY) -m leadline_dashboards

settings: env ## Write what repeats the controller's settings: the page's table, the chart's schema, the role's specs
	$(PY) -m tests.docs.settings

reference: env ## Write the pages of all commands and of the gRPC API, and the pages of the manual
	$(PY) -m tests.docs.reference

screenshots: PACKAGES += $(BROWSER)
screenshots: env packages ## Draw the map's pictures in docs/map
	$(PY) -m tests.web.screenshots

proto: env ## Generate the Python code of the .proto files
	$(PY) tests/proto/generate.py proto

clean: ## Remove what was built here
	rm -rf $(VENV) dist build .rollout .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
