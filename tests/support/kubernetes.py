"""Kubernetes on this machine: the real control plane (tests/data/kubernetes), and a small kubelet.

The control plane is etcd, kube-apiserver, kube-scheduler and kube-controller-manager on loopback.
`Kubelet` runs the containers of pods as local processes. There are no images, no CPU and memory
limits, no network of pods, and no names of services.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from jobs.setup.preflight import java_command
from jobs.testbed.places import free_ports
from tests.support.commands import ROOT, await_ends
from tests.support.go_programs import built
from tests.support.processes import becomes, beside, processes_in

HOST = "127.0.0.1"
NAMESPACE = "redline"
ACCOUNT = "spark"
SOURCE = ROOT / "tests" / "data" / "kubernetes"
START_S = 120.0
"""Deadline until the control plane answers, on two busy cores [s]."""
NODE_CPU = 4
NODE_MEMORY = "6Gi"
POLL_S = 0.2
RIGHTS = {
    "pods": ["create", "get", "list", "watch", "delete", "deletecollection"],
    "configmaps": ["create", "deletecollection"],
    "services": ["deletecollection"],
    "persistentvolumeclaims": ["deletecollection"],
}
"""Rights that docs/deploy/kubernetes.md lists for the service account: resource → verbs."""
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


@dataclass(frozen=True)
class Api:
    """The API server, for an administrator.

    Attributes:
        certificate: the certificate of the API server.
        token: bearer token of the administrator.
    """

    url: str
    certificate: Path
    token: str

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        kind: str = "application/json",
    ) -> Any:
        """Send a request, and return the answer's document."""
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": kind},
            method=method,
        )
        tls = ssl.create_default_context(cafile=str(self.certificate))
        try:
            with urllib.request.urlopen(request, timeout=30, context=tls) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode(errors="replace"))
            raise

    @property
    def is_ready(self) -> bool:
        """True if the server answers, and has created the namespaces of the system."""
        try:
            self.request("GET", "/api/v1/namespaces/kube-system")
        except OSError:
            return False
        return True

    def pods(self, selector: str = "") -> list[Any]:
        """The pods with these labels."""
        query = urllib.parse.urlencode({"labelSelector": selector})
        found = self.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?{query}")["items"]
        return list(found)

    def executor_pods(self) -> list[Any]:
        return self.pods("spark-role=executor")

    def delete(self, kind: str, name: str, **options: object) -> None:
        """Delete an object, such as `pods`; an object that has ended meanwhile is fine."""
        group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
        with suppress(urllib.error.HTTPError):
            self.request("DELETE", f"{group}/namespaces/{NAMESPACE}/{kind}/{name}", options or None)


@dataclass
class Container:
    """The only container of a pod.

    Attributes:
        process: the first process of the container.
        folder: folder of the pod, in which its processes work.
        kill_s: time of the kill after a deletion of the pod [s, monotonic].
        code: exit code that the API server knows.
    """

    process: subprocess.Popen[bytes]
    folder: Path
    kill_s: float | None = None
    code: int | None = None

    def end(self) -> int:
        """End all processes, as the end of the first process of a container does.

        Returns:
            The exit code of the first process.
        """
        self.process.kill()
        code = self.process.wait()
        for each in processes_in(self.folder):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        return code if code >= 0 else 128 - code


@dataclass
class Kubelet:
    """Runs the containers of all pods that the scheduler gave to a node.

    Attributes:
        folder: place of the pods' folders.
        images: image → home of Spark in the image.
    """

    api: Api
    folder: Path
    images: dict[str, Path] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)

    def run(self, over: threading.Event) -> None:
        try:
            while not over.wait(POLL_S):
                pods = {pod["metadata"]["name"]: pod for pod in self.api.pods()}
                for pod in pods.values():
                    if "nodeName" in pod["spec"]:
                        self._sync(pod)
                self._end(self.containers.keys() - pods.keys())
        finally:
            self._end(self.containers.keys())

    def _end(self, pods: AbstractSet[str]) -> None:
        """End the containers of pods that the API server no longer has."""
        for each in (self.containers[pod] for pod in pods):
            each.code = each.end() if each.code is None else each.code

    def folder_of(self, pod: str) -> Path:
        return self.folder / pod

    def _sync(self, pod: Any) -> None:
        meta = pod["metadata"]
        name, is_deleted = meta["name"], "deletionTimestamp" in meta
        running = self.containers.get(name)
        if running is None and not is_deleted:
            files = self._config_maps(pod)
            if files is not None:
                self.containers[name] = Container(self._start(pod, files), self.folder_of(name))
                self._report(pod, "Running", {"running": {"startedAt": _now()}})
            return
        if running is not None:
            if is_deleted and running.kill_s is None:
                running.kill_s = time.monotonic() + meta["deletionGracePeriodSeconds"]
                running.process.terminate()
            if running.kill_s is not None and time.monotonic() > running.kill_s:
                running.process.kill()
            if running.process.poll() is None:
                return
            if running.code is None:
                code = running.code = running.end()
                state = {"exitCode": code, "finishedAt": _now()}
                self._report(pod, "Failed" if code else "Succeeded", {"terminated": state})
        if is_deleted:
            self.api.delete("pods", name, gracePeriodSeconds=0)

    def _config_maps(self, pod: Any) -> dict[str, dict[str, str]] | None:
        """Volume → files of its config map; None until all config maps exist."""
        found = {}
        for volume in pod["spec"].get("volumes", ()):
            if "configMap" in volume:
                path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{volume['configMap']['name']}"
                try:
                    found[volume["name"]] = self.api.request("GET", path).get("data", {})
                except urllib.error.HTTPError as error:
                    if error.code != 404:
                        raise
                    return None
        return found

    def _start(self, pod: Any, files: Mapping[str, Mapping[str, str]]) -> subprocess.Popen[bytes]:
        """Start the container in the pod's folder; its volumes are folders there."""
        name, spec = pod["metadata"]["name"], pod["spec"]
        (container,) = spec["containers"]
        folder = self.folder_of(name)
        folder.mkdir(parents=True)
        mounts = {
            each["mountPath"]: str(folder / each["name"])
            for each in container.get("volumeMounts", ())
        }
        for volume in spec.get("volumes", ()):
            place = folder / volume["name"]
            place.mkdir()
            for file, text in files.get(volume["name"], {}).items():
                (place / file).write_text(text)
        home = self.images[container["image"]]
        environ = {
            "HOME": str(folder),
            "PATH": f"{home.parents[3] / 'bin'}:{os.environ['PATH']}",
            "SPARK_HOME": str(home),
            **{each: os.environ[each] for each in ("JAVA_HOME",) if each in os.environ},
        }
        for each in container.get("env", ()):
            environ[each["name"]] = _in_place(_value_of(each, name), mounts)
        words = [*container.get("command", ()), *container.get("args", ())]
        if "command" not in container:
            assert words == ["executor"], words
            words = _executor(environ)
        for key, value in environ.items():
            words = [word.replace(f"$({key})", value) for word in words]
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                [_in_place(word, mounts) for word in words],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _report(self, pod: Any, phase: str, state: Mapping[str, object]) -> None:
        """Write the status of a pod."""
        (container,) = pod["spec"]["containers"]
        is_ready = phase == "Running"
        status = {
            "phase": phase,
            "podIP": HOST,
            "podIPs": [{"ip": HOST}],
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": is_ready,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
        kind = "application/strategic-merge-patch+json"
        try:
            self.api.request("PATCH", path, {"status": status}, kind)
        except urllib.error.HTTPError as error:
            if error.code != 404:  # the pod has been deleted meanwhile
                raise


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _value_of(variable: Any, pod: str) -> str:
    """The value of an environment variable of a container."""
    if "valueFrom" not in variable:
        return str(variable.get("value", ""))
    known = {"status.podIP": HOST, "metadata.name": pod}
    return known[variable["valueFrom"]["fieldRef"]["fieldPath"]]


def _in_place(text: str, mounts: Mapping[str, str]) -> str:
    for path, place in mounts.items():
        text = text.replace(path, place)
    return text


def _executor(environ: Mapping[str, str]) -> list[str]:
    """The command that the entry point of Spark's image makes of the word `executor`."""
    options = {key for key in environ if key.startswith("SPARK_JAVA_OPT_")}
    memory, jars = environ["SPARK_EXECUTOR_MEMORY"], f"{environ['SPARK_HOME']}/jars/*"
    words = {
        "driver-url": "SPARK_DRIVER_URL",
        "executor-id": "SPARK_EXECUTOR_ID",
        "cores": "SPARK_EXECUTOR_CORES",
        "app-id": "SPARK_APPLICATION_ID",
        "hostname": "SPARK_EXECUTOR_POD_IP",
        "resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "podName": "SPARK_EXECUTOR_POD_NAME",
    }
    return [
        java_command(environ),
        *(environ[key] for key in sorted(options, key=lambda key: int(key.rpartition("_")[2]))),
        *(f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{environ.get('SPARK_CONF_DIR', '')}:{jars}"),
        _BACKEND,
        *(part for word, key in words.items() for part in (f"--{word}", environ[key])),
    ]


@dataclass
class Driver:
    """A Job whose pod runs a command.

    Attributes:
        name: name of the Job.
    """

    api: Api
    kubelet: Kubelet
    name: str
    _read: int = 0

    @property
    def container(self) -> Container | None:
        """The container of the only pod of the Job; None before its start."""
        known = dict(self.kubelet.containers)
        return next((known[pod] for pod in known if pod.startswith(f"{self.name}-")), None)

    @property
    def has_ended(self) -> bool:
        return self.container is not None and self.container.code is not None

    @property
    def text(self) -> str:
        """The log of the container."""
        for place in self.kubelet.folder.glob(f"{self.name}-*/log"):
            return place.read_text(errors="replace")
        return ""

    def await_line(self, part: str, deadline_s: float) -> str:
        """Wait for the next line of the log that contains `part`, and return it."""
        found: list[str] = []

        def is_there() -> bool:
            lines = self.text.splitlines(keepends=True)
            for number, line in enumerate(lines[self._read :], self._read):
                if part in line and line.endswith("\n"):
                    self._read = number + 1
                    found.append(line)
                    return True
            return self.has_ended

        assert becomes(is_there, deadline_s) and found, f"no line with {part!r}:\n{self.text}"
        return found[0]

    def wait(self, deadline_s: float) -> int:
        """Wait for the end of the pod, and return the exit code in the status of the pod."""
        assert becomes(lambda: self.has_ended, deadline_s), self.text
        assert becomes(lambda: self._exit_codes() != [], START_S), self.text
        (code,) = self._exit_codes()
        return code

    def _exit_codes(self) -> list[int]:
        return [
            status["state"]["terminated"]["exitCode"]
            for pod in self.api.pods(f"job-name={self.name}")
            for status in pod["status"].get("containerStatuses", ())
            if "terminated" in status["state"]
        ]


@dataclass(frozen=True)
class Kubernetes:
    """A control plane and the nodes of a cluster.

    Attributes:
        token: file with the token of the service account `ACCOUNT`.
    """

    api: Api
    kubelet: Kubelet
    token: Path

    @contextmanager
    def job(
        self, name: str, image: str, command: Sequence[str], environ: Mapping[str, str]
    ) -> Iterator[Driver]:
        """Run a command in the pod of a Job; at the end the Job and all pods are deleted.

        The name of the pod is `$(POD)`.
        """
        pod_name = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        variables = [{"name": key, "value": value} for key, value in environ.items()]
        container = {
            "name": "driver",
            "image": image,
            "command": list(command),
            "env": [pod_name, *variables],
        }
        pod = {
            "serviceAccountName": ACCOUNT,
            "restartPolicy": "Never",
            "containers": [container],
        }
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        }
        self.api.request("POST", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", job)
        try:
            yield Driver(self.api, self.kubelet, name)
        finally:
            self.api.delete("jobs", name, propagationPolicy="Background")
            assert becomes(lambda: self.api.pods() == [], START_S)


@contextmanager
def kubernetes(folder: Path, nodes: int = 2) -> Iterator[Kubernetes]:
    """Start the control plane and the kubelet; at the end no process is left."""
    program, token = str(built(SOURCE)), secrets.token_hex(16)
    store, peers, port = free_ports(3)
    folder.chmod(0o700)
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    api = Api(f"https://{HOST}:{port}", folder / "certificates" / "apiserver.crt", token)
    with ExitStack() as stack:

        def begin(name: str, **options: object) -> None:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            words = [f"--{word.replace('_', '-')}={value}" for word, value in options.items()]
            process = subprocess.Popen(
                [program, name, *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.send_signal, signal.SIGKILL)

        begin(
            "etcd",
            data_dir=folder / "etcd",
            listen_client_urls=f"http://{HOST}:{store}",
            advertise_client_urls=f"http://{HOST}:{store}",
            listen_peer_urls=f"http://{HOST}:{peers}",
            initial_advertise_peer_urls=f"http://{HOST}:{peers}",
            initial_cluster=f"default=http://{HOST}:{peers}",
        )
        begin(
            "kube-apiserver",
            etcd_servers=f"http://{HOST}:{store}",
            bind_address=HOST,
            advertise_address=HOST,
            secure_port=port,
            cert_dir=api.certificate.parent,
            service_account_issuer=api.url,
            service_account_key_file=key,
            service_account_signing_key_file=key,
            token_auth_file=folder / "tokens.csv",
            authorization_mode="RBAC",
            endpoint_reconciler_type="none",
            service_cluster_ip_range="10.0.0.0/24",
            # Tokens of pods are in a file of this machine, and nodes are ready from the start.
            disable_admission_plugins="ServiceAccount,TaintNodesByCondition",
        )
        assert becomes(lambda: api.is_ready, START_S), folder
        config = folder / "admin.json"
        config.write_text(json.dumps(_client_config(api)))
        begin("kube-scheduler", kubeconfig=config, secure_port=0, leader_elect="false")
        begin(
            "kube-controller-manager",
            kubeconfig=config,
            secure_port=0,
            leader_elect="false",
            controllers="garbage-collector-controller,job-controller",
        )
        _create_account(api)
        for number in range(nodes):
            _create_node(api, f"node-{number}")
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
        granted = api.request("POST", account, {"spec": {"expirationSeconds": 36_000}})
        (folder / "account.token").write_text(granted["status"]["token"])
        kubelet, over = Kubelet(api, folder / "pods"), threading.Event()
        stack.callback(_end_containers, folder / "pods")
        stack.enter_context(beside(lambda: kubelet.run(over), over))
        yield Kubernetes(api, kubelet, folder / "account.token")


def _client_config(api: Api) -> Mapping[str, object]:
    cluster = {"server": api.url, "certificate-authority": str(api.certificate)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": api.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }


def _create_account(api: Api) -> None:
    """The namespace, and a service account with `RIGHTS`."""
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    account = {"metadata": {"name": ACCOUNT}}
    api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
    group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    rules = [
        {"apiGroups": [""], "resources": [resource], "verbs": verbs}
        for resource, verbs in RIGHTS.items()
    ]
    api.request("POST", f"{group}/roles", {"metadata": {"name": ACCOUNT}, "rules": rules})
    binding = {
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
    api.request("POST", f"{group}/rolebindings", binding)


def _create_node(api: Api, name: str) -> None:
    resources = {"cpu": str(NODE_CPU), "memory": NODE_MEMORY, "pods": "10"}
    status = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    api.request("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})


def _end_containers(folder: Path) -> None:
    """End what containers left: their processes work in the folders of their pods."""
    left = processes_in(folder)
    for each in left:
        each.kill()
    assert await_ends(left, 30.0) == []
