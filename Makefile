# Needs make, Python 3.11 to 3.13 and Java 17 or 21; everything else goes into .venv.
# To name the Python: make PYTHON=/path/to/python3.12

SPARKS := 3.5.9 4.1.4 4.3.0
MARKED := spark
QUERIES := 100000
CRASHES := 1000
RACE := 60
DRIVERS := 20
MACHINES := 100
SEED := $(shell date +%s)
JVM := jvm and not tables and not clusters

# No other Spark's settings and no stray modules; a driver on one machine needs no name in the network.
unexport SPARK_HOME PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYTHONPATH PYTHONHOME
# Rewriting the assertions of all tests takes longer than importing them: it is done once, and kept.
unexport PYTHONDONTWRITEBYTECODE
export PYTHON
export SPARK_LOCAL_IP ?= 127.0.0.1

JAVA = python=$$(.ci/python) && "$$python" .ci/java.py
WITH_JAVA = python=$$(.ci/python) && JAVA_HOME=$$("$$python" .ci/java.py) && export JAVA_HOME &&

.NOTPARALLEL:
.PHONY: help demo test test-core test-slow test-tables test-hudi test-clusters test-versions test-wheel soak bench dist docs sbom format venv java check-java lock clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

demo: check-java venv  ## real queries, with geoskip off and on
	@$(WITH_JAVA) .venv/bin/python examples/demo.py

test: check-java venv test-core  ## every check but the slow ones; ends with pytest's closing line
	.venv/bin/python -m ruff check
	.venv/bin/python -m ruff format --check
	.venv/bin/python -m mypy
	.venv/bin/lint-imports --no-logo
	@$(WITH_JAVA) .venv/bin/python -m pytest -m '$(JVM) and not slow'

test-core: venv  ## the part of the tests that needs no JVM, in parallel
	.venv/bin/python -m pytest -q -n 2 --dist worksteal -m 'not jvm and not slow'

test-slow: check-java venv  ## the tests that take some seconds each
	.venv/bin/python -m pytest -q -n 2 --dist worksteal -m 'slow and not jvm'
	@$(WITH_JAVA) .venv/bin/python -m pytest -m 'slow and $(JVM)'

test-tables: check-java venv  ## tables of Delta and Iceberg, with their jars
	@$(WITH_JAVA) .venv/bin/python -m pytest -q tests/tables

test-hudi: check-java .venv-3.5.9/.installed  ## tables of Hudi, with the Spark that its jar is for
	@$(WITH_JAVA) .venv-3.5.9/bin/python -m pytest -q tests/tables/test_hudi.py

test-clusters: check-java venv  ## a standalone cluster of two workers, and Spark Connect
	@$(WITH_JAVA) .venv/bin/python -m pytest -q -o faulthandler_timeout=1200 tests/clusters

test-versions: check-java $(SPARKS:%=.venv-%/.installed)  ## the tests with Spark on other Sparks
	@.ci/test-versions '$(MARKED)' $(SPARKS)

test-wheel: check-java venv  ## wheel and sdist built and installed bare, the quick start run there
	@$(WITH_JAVA) .ci/test-wheel .venv/bin/python

soak: export PYTEST_ADDOPTS = -o faulthandler_timeout=7200
soak: check-java venv  ## 100,000 random queries, 1,000 crashes, a minute of races: make soak QUERIES=1000 SEED=1
	@for round in 1 2 3 4 5; do GEOSKIP_EXAMPLES=other .venv/bin/python -m pytest -q -m 'hypothesis and not spark' || exit 1; done
	@$(WITH_JAVA) GEOSKIP_EXAMPLES=other .venv/bin/python -m pytest -q -m '$(JVM)'
	@$(WITH_JAVA) GEOSKIP_TABLE_RACE=$(RACE) .venv/bin/python -m pytest -s tests/tables -k race
	@GEOSKIP_CRASHES=$(CRASHES) GEOSKIP_RACE=$(RACE) .venv/bin/python -m pytest -s tests/stores/test_crashes.py
	@GEOSKIP_FUZZ=$(QUERIES) GEOSKIP_SEED=$(SEED) .venv/bin/python -m pytest -s tests/stores/test_metadata_fuzz.py
	@$(WITH_JAVA) GEOSKIP_QUERIES=$(QUERIES) GEOSKIP_SEED=$(SEED) .venv/bin/python -m pytest -s tests/spark/test_random.py
	@$(WITH_JAVA) GEOSKIP_JSON=1000 GEOSKIP_SEED=$(SEED) .venv/bin/python -m pytest -s tests/spark/test_random_json.py
	@$(WITH_JAVA) GEOSKIP_MACHINES=$(MACHINES) .venv/bin/python -m pytest -s tests/spark/test_lifecycle.py -k any_order
	@$(WITH_JAVA) GEOSKIP_DRIVERS=$(DRIVERS) .venv/bin/python -m pytest -s tests/spark/test_drivers.py
	@$(WITH_JAVA) GEOSKIP_PARTITIONS=10000 .venv/bin/python -m pytest -s tests/spark/test_lifecycle.py -k many_partitions

bench: check-java venv  ## speeds, side by side
	@$(WITH_JAVA) .venv/bin/python -m tests.bench

dist: check-java venv  ## wheel, source distribution and the optional jar for JDBC servers, in dist/
	@.venv/bin/python -m hatchling build -d dist
	@$(WITH_JAVA) .venv/bin/python -m geoskip.spark.jdbc.extension_jar dist/geoskip-extension-$$(.venv/bin/python -c \
	'import geoskip; print(geoskip.__version__)').jar

docs: venv  ## the guides and the reference as a site: site/index.html
	.venv/bin/python .ci/docs.py

sbom: venv  ## what constraints.txt pins: bill of materials and licences, in dist/
	@.ci/sbom .venv/bin/python

format: venv  ## in place
	.venv/bin/python -m ruff check --fix
	.venv/bin/python -m ruff format

venv: .venv/.installed  ## the environment alone

.venv/.installed: pyproject.toml constraints.txt .ci/venv
	@.ci/venv .venv

.venv-%/.installed: pyproject.toml constraints.txt .ci/venv
	@.ci/venv .venv-$* $*

java:  ## install a Java, as root on Debian or Ubuntu, where no suitable one is found
	@$(JAVA) --install

check-java:
	@$(JAVA) >/dev/null

lock: venv  ## pin what .venv holds
	@{ echo '# Written by make lock: Python 3.11 to 3.13.'; \
	.venv/bin/python -m pip freeze --all --exclude-editable; } >.venv/lock && mv .venv/lock constraints.txt

clean:  ## remove environments, caches and what Spark leaves behind
	rm -rf .venv .venv-* .*_cache .hypothesis .benchmarks spark-warehouse metastore_db derby.log artifacts dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
