"""Checks of the ready files of docs/deploy by programs that are too large for the tests.

Airflow loads the DAG in a separate environment, and the schema of Kubeflow's Spark operator
validates the application. `make release-check` does both; tests check the other files.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
import venv
from pathlib import Path
from typing import Any, Final

import jsonschema
from ruamel.yaml import YAML

from tests.support.commands import ROOT

READY: Final = ROOT / "docs" / "deploy" / "ready"
AIRFLOW: Final = (
    "apache-airflow-core==3.3.2",
    "apache-airflow-providers-standard==1.21.0",
    "apache-airflow-providers-apache-spark==6.3.4",
)
OPERATOR: Final = "2.5.2"
OPERATOR_SCHEMA: Final = (
    f"https://raw.githubusercontent.com/kubeflow/spark-operator/v{OPERATOR}/charts/"
    "spark-operator-chart/crds/sparkoperator.k8s.io_scheduledsparkapplications.yaml"
)
"""Address of the operator's schema, which is too large for this repository (850 kB)."""

RUNS: Final = {
    "scheduled": {"run_id": "scheduled__2026-11-25T02:00:00+00:00", "ds": "2026-11-25"},
    "by hand": {"run_id": "manual__2026-11-25T09:12:03.123456+00:00"},
    "by an asset": {"run_id": "asset_triggered__2026-11-25T09:12:03.123456+00:00_x7Bq2LmN"},
}
"""Contexts of DAG runs: one that is not scheduled may have no logical date, and so no `ds`."""

_LOAD = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
tasks = {name: [task.task_type for task in dag.tasks] for name, dag in bag.dags.items()}
for dag in bag.dags.values():
    for task in dag.tasks:
        for context in json.loads(sys.argv[2]).values():
            task.render_template(task.application_args, {**context, "dag": dag, "task": task},
                                 dag.get_template_env())
print(json.dumps([bag.import_errors, tasks]))
"""


def airflow_python(folder: Path) -> Path:
    """The Python of an environment with Airflow, which is made in `folder` on the first call.

    Raises:
        subprocess.CalledProcessError: pip could not install Airflow.
    """
    python, complete = folder / "bin" / "python", folder / ".complete"
    if not complete.is_file():
        venv.create(folder, with_pip=True, symlinks=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *AIRFLOW], check=True, cwd=folder)
        complete.touch()
    return python


def airflow_trouble(folder: Path) -> str:
    """The errors of Airflow about the ready DAG; empty without an error.

    Args:
        folder: folder of the environment, see `airflow_python`.
    """
    done = subprocess.run(
        [
            str(airflow_python(folder)),
            "-c",
            _LOAD,
            str(READY / "airflow_nightly.py"),
            json.dumps(RUNS),
        ],
        cwd=folder,
        env={**os.environ, "AIRFLOW_HOME": str(folder / "home"), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"Airflow's DagBag ended with {done.returncode}: {done.stderr.strip()[-500:]}"
    errors, tasks = json.loads(done.stdout.splitlines()[-1])
    if errors:
        return "; ".join(" ".join(text.split())[-500:] for text in errors.values())
    expected = {"redline_nightly": ["RedlineOperator"]}
    return "" if tasks == expected else f"expected {expected}, loaded {tasks}"


def operator_trouble(place: str, given: dict[str, Any] | None = None) -> str:
    """The errors of the operator's custom resource definition about an application.

    Args:
        place: address or file of the definition.
        given: the application; by default the ready one.
    """
    try:
        text = _read(place)
    except OSError as error:
        return f"not checked: {place} cannot be read ({error}); name a file with CRD=FILE"
    (version,) = YAML(typ="safe").load(text)["spec"]["versions"]
    own = given or YAML(typ="safe").load(READY / "kubernetes-spark-operator.yaml")
    if own["apiVersion"] != f"sparkoperator.k8s.io/{version['name']}":
        return f"{own['apiVersion']}: expected sparkoperator.k8s.io/{version['name']}"
    schema = strict(version["schema"]["openAPIV3Schema"])
    found = jsonschema.Draft202012Validator(schema).iter_errors(own)
    return "; ".join(f"{error.json_path}: {error.message}" for error in found)


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A copy of a schema that refuses unknown keys, which Kubernetes drops without a message.

    Objects without described properties, such as `metadata`, may have any keys.
    """
    own = dict(schema)
    if "properties" in own:
        own["properties"] = {name: strict(each) for name, each in own["properties"].items()}
        own.setdefault("additionalProperties", False)
    if isinstance(own.get("items"), dict):
        own["items"] = strict(own["items"])
    if isinstance(own.get("additionalProperties"), dict):
        own["additionalProperties"] = strict(own["additionalProperties"])
    return own


def _read(place: str) -> str:
    if place.startswith("https://"):
        with urllib.request.urlopen(place, timeout=60) as answer:
            return str(answer.read().decode("utf-8"))
    return Path(place).read_text(encoding="utf-8")
