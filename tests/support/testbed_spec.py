"""The specification of a testbed, for tests that do not start one."""

from __future__ import annotations

from jobs.testbed.model import Spec

SPEC = Spec(
    id="small-00c0ffee",
    name="small",
    profile="disk-bound",
    description="",
    kafka_version="4.1.2",
    brokers=2,
    heap_mb=256,
    disk_limit_bytes=10**9,
    broker_properties={"num.io.threads": "2", "offsets.topic.replication.factor": "1"},
    controller_properties={"num.io.threads": "1"},
    java="/opt/java/bin/java",
    jars=("/jars/a.jar", "/jars/b.jar"),
    class_archive=None,
    ready_deadline_s=10.0,
    owned=True,
)
