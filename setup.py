"""Packaging of kafka-redline: flat packages, data in `conf`, one console command.

`conf/constraints.txt` pins every package exactly; the ranges here say what is needed.
Delta and Spark are pinned here too, because their jars must fit together: a newer Delta
installs from the package index before its jar is on Maven Central.
"""

from __future__ import annotations

import runpy
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
OWN = runpy.run_path(str(ROOT / "jobs" / "setup" / "version.py"))
VERSION, HOME = OWN["__version__"], OWN["HOME"]
README = ROOT / "README.md"

# Why each of these: docs/decisions/libraries.md.
REQUIRES = [
    "kafka-python==3.0.12",
    "crc32c>=2.7",
    "lz4>=4.3",
    "python-snappy>=0.7.3",
    "zstandard>=0.22",
    "jmxquery==0.6.0",
    "click>=8.0.4",
    "rich>=13.7",
    "pydantic>=2.7",
    "ruamel.yaml>=0.18",
    "javaproperties>=0.8.1",
    "trustme>=1.2",
    "cryptography>=41",
    "altair>=5.5",
    "hdrhistogram>=0.10.3",
    "psutil>=5.9",
    "filelock>=3.13",
    "junitparser>=5.0",
    "Jinja2>=3.1",
    "numpy>=1.23.5",
    "pyarrow>=14.0.1",
    "pandas>=1.5.3,<3",
    "mpmath>=1.3",
]

EXTRAS = {
    # For machines that have no Spark; Databricks, EMR and the like bring their own.
    # pandas and pyarrow as this PySpark requires them; older ones fit an older PySpark.
    "spark": ["pyspark==4.1.4", "delta-spark==4.4.0", "pandas>=2.2", "pyarrow>=15"],
    # Pictures, and the charts of pages; without it pages have tables.
    "charts": ["vl-convert-python>=1.7"],
    # --metrics-port and --notify.
    "live": ["prometheus-client>=0.21", "apprise>=1.9"],
    # The date of redline headroom; with SciPy it is 160 MB.
    "forecast": ["statsmodels>=0.14.4"],
    "librdkafka": ["confluent-kafka>=2.6"],
    # Logins by Kerberos; Linux has no wheel of it, so that it wants a compiler and libkrb5-dev.
    "gssapi": ["gssapi>=1.8"],
    # Logins to Amazon MSK by IAM, on the driver.
    "msk": ["aws-msk-iam-sasl-signer-python>=1.0.1"],
    # A Jupyter kernel, and what PySpark needs to be a client of Spark Connect.
    "notebooks": [
        "ipykernel>=6.29",
        "grpcio>=1.76",
        "grpcio-status>=1.76",
        "googleapis-common-protos>=1.71",
    ],
    # What `make dist` builds a wheel with.
    "dist": ["build", "setuptools", "wheel"],
    "dev": [
        "check-jsonschema",
        "chispa",
        "coverage",
        "databricks-bundles",
        "deltalake",
        "hypothesis",
        "jsonschema",
        "jsonschema-rs",
        "kubernetes-validate",
        "MLRsearch",
        "mutmut",
        "mypy",
        "nbclient",
        "nbformat",
        "playwright",
        "pytest",
        "pytest-cov",
        "pytest-timeout",
        "pytest-xdist",
        "ruff",
        "scipy>=1.15",
        "syrupy",
        "zensical; python_version >= '3.11'",
        "types-psutil",
    ],
}

# Developers have all the others, but for the one that Linux has no wheel of.
EXTRAS["dev"] += [
    text for extra, texts in EXTRAS.items() if extra not in ("dev", "gssapi") for text in texts
]

# Flat, so that a Git checkout works as it is; a test checks that none is forgotten.
PACKAGES = [
    "search",
    "metrics",
    "metrics.common",
    "metrics.comparing",
    "metrics.features",
    "metrics.features.headroom",
    "metrics.features.learn",
    "metrics.features.nightly",
    "metrics.features.plan",
    "metrics.features.sweep",
    "metrics.judging",
    "metrics.planning",
    "metrics.reporting",
    "metrics.sources",
    "metrics.sources.hosts",
    "metrics.sources.server",
    "metrics.tables",
    "metrics.traffic",
    "metrics.trial",
    "metrics.windows",
    "jobs",
    "jobs.campaigns",
    "jobs.checks",
    "jobs.cluster",
    "jobs.config",
    "jobs.console",
    "jobs.engine",
    "jobs.engine.clients",
    "jobs.engine.batches",
    "jobs.engine.consuming",
    "jobs.engine.network",
    "jobs.engine.producing",
    "jobs.engine.task",
    "jobs.features",
    "jobs.features.compare",
    "jobs.features.doctor",
    "jobs.features.headroom",
    "jobs.features.learn",
    "jobs.features.nightly",
    "jobs.features.plan",
    "jobs.features.sweep",
    "jobs.live",
    "jobs.measurements",
    "jobs.runs",
    "jobs.setup",
    "jobs.spark",
    "jobs.testbed",
    "jobs.trials",
    "conf",
]

URLS = {
    "Source": HOME,
    "Issues": f"{HOME}/issues",
    "Documentation": f"{HOME}/tree/v{VERSION}/docs",
    "Changelog": f"{HOME}/blob/v{VERSION}/CHANGELOG.md",
    "Security": f"{HOME}/blob/v{VERSION}/SECURITY.md",
}

setup(
    name="kafka-redline",
    version=VERSION,
    description="Finds how much traffic a Kafka cluster can take, and what limits it",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: System Administrators",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: System :: Benchmark",
    ],
    project_urls=URLS if HOME else {},
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=PACKAGES,
    package_data={
        "conf": ["**/*.yaml", "**/*.txt", "**/*.properties", "**/*.json", "**/*.sha256"],
        "metrics.reporting": ["templates/*"],
        "metrics.sources": ["*.java"],
        "jobs.spark": ["*.java"],
        "jobs.testbed": ["*.java"],
    },
    install_requires=REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["redline = jobs.cli:main"]},
)
