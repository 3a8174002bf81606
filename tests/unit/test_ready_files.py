"""The ready files of docs/deploy, checked by the loaders and schemas of their readers."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import javaproperties
import jinja2
import jsonschema
import kubernetes_validate
import pytest
from databricks.bundles.jobs import Job, JobDict
from ruamel.yaml import YAML

from jobs.config import load
from jobs.config.base import is_name
from jobs.setup.ivy import spark_jar
from jobs.setup.version import __version__
from jobs.spark.compatibility import commit_problem
from tests.bench.ready_files import READY, RUNS, operator_trouble, strict
from tests.support.commands import ROOT, job
from tests.support.cron import CRONTAB, crontab


def documents(name: str) -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all((READY / name).read_text(encoding="utf-8")))


def properties(name: str) -> dict[str, str]:
    """The settings in a file of conf/spark."""
    return javaproperties.loads((ROOT / "conf" / "spark" / f"{name}.properties").read_text())


def require_command(words: list[str]) -> None:
    """Require that a command line has only options of the job that it names."""
    at = next((i for i, word in enumerate(words) if re.search(r"jobs/\w+\.py$", word)), None)
    name = words[0] if at is None else Path(words[at]).stem.replace("_", "-")
    own = words[1:] if at is None else words[at + 1 :]
    known = {option for parameter in job(name).params for option in parameter.opts}
    assert {word for word in own if word.startswith("--")} <= known
    if at is not None:
        assert any(word.endswith(f"kafka_redline-{__version__}-py3-none-any.whl") for word in words)
        assert "--yes" in own


def test_the_bundle_is_loaded_by_databricks_own_library() -> None:
    (bundle,) = documents("databricks.yml")
    (nightly,) = bundle["resources"]["jobs"].values()
    assert Job.from_dict(cast("JobDict", nightly)).as_dict() == nightly, "each key is known"
    (task,) = nightly["tasks"]
    assert task["max_retries"] == 0
    require_command(task["python_wheel_task"]["parameters"])
    (library,) = task["libraries"]
    assert library["whl"].endswith(f"kafka_redline-{__version__}-py3-none-any.whl")
    text = (READY / "databricks.yml").read_text()
    assert set(re.findall(r"\$\{var\.(\w+)\}", text)) == set(bundle["variables"])


def test_kubernetes_accepts_the_cron_job_and_its_service() -> None:
    latest = kubernetes_validate.latest_version()
    for own in documents("kubernetes-cronjob.yaml"):
        kubernetes_validate.validate(own, latest, strict=True)


def test_the_cron_job_submits_an_existing_job() -> None:
    service, cron = documents("kubernetes-cronjob.yaml")
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    require_command(container["args"])
    assert pod["metadata"]["labels"] == service["spec"]["selector"]
    ports = {str(port["port"]) for port in service["spec"]["ports"]}
    settings = dict(each.split("=", 1) for each in container["args"] if each.startswith("spark."))
    assert ports == {value for name, value in settings.items() if name.endswith(".port")}
    assert "/opt/redline/submit.properties" in container["args"]
    assert "--packages" not in container["args"], "it would replace those of s3.properties"
    image = (READY / "Dockerfile").read_text()
    for line in (
        "COPY conf/spark/submit.properties /opt/redline/",
        "COPY conf/spark/s3.properties /opt/redline/",
        "RUN cat /opt/redline/s3.properties >> /opt/redline/submit.properties",
        "COPY jobs/nightly.py /opt/redline/jobs/",
    ):
        assert line in image
    for source in re.findall(r"^COPY ((?:conf|jobs)\S+)", image, re.M):
        assert (ROOT / source).is_file(), source


def test_the_application_submits_an_existing_job_with_the_common_settings() -> None:
    """`make release-check` checks it with the operator's own schema."""
    (scheduled,) = documents("kubernetes-spark-operator.yaml")
    own = scheduled["spec"]["template"]
    (wheel,) = own["deps"]["pyFiles"]
    require_command([wheel, own["mainApplicationFile"], *own["arguments"]])
    assert own["restartPolicy"] == {"type": "Never"}
    needed = properties("submit") | properties("s3")
    assert own["deps"]["packages"] == needed.pop("spark.jars.packages").split(",")
    del needed["spark.yarn.maxAppAttempts"]  # for YARN; here restartPolicy says it
    assert needed.items() <= own["sparkConf"].items()
    assert own["sparkVersion"] == version("pyspark")
    (cron,) = [each for each in documents("kubernetes-cronjob.yaml") if each["kind"] == "CronJob"]
    (driver,) = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert own["image"] == driver["image"]
    assert own["arguments"] == driver["args"][driver["args"].index("--suite") :]


@pytest.mark.long  # of `make release-check`
def test_a_schema_is_strict_where_it_lists_properties() -> None:
    inner = {"type": "object", "properties": {"cores": {"type": "integer"}}}
    schema = {
        "properties": {
            "metadata": {"type": "object"},
            "pods": {"type": "array", "items": inner},
            "named": {"additionalProperties": inner},
            "open": {**inner, "additionalProperties": True},
        }
    }
    check = jsonschema.Draft202012Validator(strict(schema)).is_valid
    assert check({"metadata": {"name": "x"}, "pods": [{"cores": 1}], "named": {"a": {"cores": 1}}})
    assert check({"open": {"cores": 1, "corez": 1}})
    assert not check({"pods": [{"corez": 1}]})
    assert not check({"named": {"a": {"corez": 1}}})
    assert not check({"podz": []})


@pytest.mark.long  # of `make release-check`
def test_keys_that_the_operator_would_drop_or_refuse_are_found(tmp_path: Path) -> None:
    (own,) = documents("kubernetes-spark-operator.yaml")
    known = {name: {"type": "object"} for name in ("metadata", "spec")}
    known |= {name: {"type": "string"} for name in ("apiVersion", "kind")}
    versions = [{"name": "v1beta2", "schema": {"openAPIV3Schema": {"properties": known}}}]
    place = tmp_path / "definition.yaml"
    place.write_text(json.dumps({"spec": {"versions": versions}}))
    assert operator_trouble(str(place), own) == ""
    assert "'metadta' was unexpected" in operator_trouble(str(place), {**own, "metadta": {}})
    assert "expected sparkoperator.k8s.io/v1beta2" in operator_trouble(
        str(place), {**own, "apiVersion": "sparkoperator.k8s.io/v1"}
    )
    assert operator_trouble(str(tmp_path / "none.yaml"), own).startswith("not checked: ")


def test_github_accepts_the_workflow() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    check += ["vendor.github-workflows", str(READY / "github-actions.yml")]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (workflow,) = documents("github-actions.yml")
    lines = [step.get("run", "") for each in workflow["jobs"].values() for step in each["steps"]]
    commands = [shlex.split(run) for run in lines if run.startswith(".venv/bin/redline")]
    assert len(commands) == 2
    for words in commands:
        require_command(words[1:])


def test_the_dag_and_cron_submit_an_existing_job() -> None:
    """This test reads the arguments; a long test runs the DAG in Airflow."""
    tree = ast.parse((READY / "airflow_nightly.py").read_text(encoding="utf-8"))
    calls = {
        node.func.id: {
            each.arg: ast.literal_eval(each.value)
            for each in node.keywords
            if not isinstance(each.value, ast.Call)
        }
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    operator = calls["RedlineOperator"]
    paths = ("spark_binary", "properties_file", "py_files", "application")
    assert all(Path(operator[name]).is_absolute() for name in paths)
    strict_templates = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    nights = set()
    for context in RUNS.values():
        rendered = [
            strict_templates.from_string(word).render(context)
            for word in operator["application_args"]
        ]
        words = [part for word in rendered for part in word.split("=", 1)]
        require_command([operator["py_files"], operator["application"], *words])
        night = words[words.index("--night") + 1]
        assert is_name(night), night
        nights.add(night)
    assert len(nights) == len(RUNS)
    assert calls["DAG"]["max_active_runs"] == 1
    require_command(crontab(CRONTAB.read_text(encoding="utf-8")).submitted)


def test_files_are_linked_and_tables_on_s3_have_a_log_store_for_several_writers() -> None:
    """Each ready file whose tables are on S3 names the settings, or the file that has them."""
    page = (ROOT / "docs" / "deploy" / "README.md").read_text(encoding="utf-8")
    assert commit_problem("s3a://bucket/redline", "s3a", properties("s3")) is None
    for path in filter(Path.is_file, READY.iterdir()):
        assert f"](ready/{path.name})" in page
        text = path.read_text(encoding="utf-8")
        if "s3a://" in text:
            assert "s3.properties" in text or "logStore.s3a.impl" in text, path.name
            assert "submit.properties" in text, path.name


def test_the_packages_for_s3_are_those_of_this_spark() -> None:
    spark, delta = version("pyspark"), version("delta-spark")
    hadoop = spark_jar("hadoop-client-api").stem.rpartition("-")[2]
    assert set(properties("s3")["spark.jars.packages"].split(",")) >= {
        f"io.delta:delta-spark_{spark.rpartition('.')[0]}_2.13:{delta}",
        f"io.delta:delta-storage-s3-dynamodb:{delta}",
        f"org.apache.hadoop:hadoop-aws:{hadoop}",
    }


CLUSTERS = sorted((READY / "clusters").glob("*.yaml"))


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_a_cluster_of_a_provider_loads_and_states_whether_it_was_tested(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOTSTRAP", "b-1.example.com:9096")
    monkeypatch.setenv("CLUSTER", "events")
    monkeypatch.setenv("NAMESPACE", "kafka")
    cluster = load(str(path), "quick", "quick").cluster
    assert cluster.bootstrap_servers is not None
    assert cluster.metrics is not None
    assert re.search(r"^# .*\b(NOT )?TESTED:", path.read_text(encoding="utf-8"), re.M)
    page = (ROOT / "docs" / "deploy" / "README.md").read_text(encoding="utf-8")
    assert f"](ready/clusters/{path.name})" in page
