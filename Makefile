VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
SYNCED := $(VENV)/.synced

.PHONY: env lock proto

env: $(SYNCED)

# The three distributions are installed in place; all that they need is locked by hash.
$(SYNCED): pyproject.toml agent/pyproject.toml controller/pyproject.toml proto/pyproject.toml requirements.lock
	@test -x $(UV) || { python3 -m venv $(VENV) && $(PY) -m pip install --quiet --disable-pip-version-check uv; }
	@$(UV) pip install --quiet --python $(PY) --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python $(PY) --no-deps -e proto -e agent -e controller
	@touch $@

lock: env
	$(UV) lock
	$(UV) export --quiet --all-groups --all-extras --no-emit-workspace --no-header --format requirements-txt -o requirements.lock

proto: env
	$(PY) tests/proto/generate.py proto
