"""Permissions on guarded brokers, as the owner of a cluster grants them to the runs' user."""

from __future__ import annotations

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)

from jobs.cluster.admin import KafkaAdmin

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Properties of brokers with ACLs; clients of the plain listener have all rights."""


def grant(superuser: KafkaAdmin, resource: ResourceType, operation: ACLOperation) -> None:
    """Allow an operation on the cluster, or on what has the prefix of docs/doctor.md."""
    pattern = (
        ResourcePattern(resource, "kafka-cluster")
        if resource is ResourceType.CLUSTER
        else ResourcePattern(resource, "redline-", ACLResourcePatternType.PREFIXED)
    )
    allowed = ACL("User:redline", "*", operation, ACLPermissionType.ALLOW, pattern)
    superuser.client.create_acls([allowed])
