"""The releases of Kafka that can be started here, and the default release."""

from __future__ import annotations

from metrics.common.bounds import Text

DEFAULT_RELEASE = "4.1.2"

RELEASE = Text(
    r"(3\.(9|[1-9]\d)|[4-9]\.\d+|[1-9]\d\.\d+)\.\d+",
    f'a Kafka version from 3.9.0 on, in quotes, such as "{DEFAULT_RELEASE}"',
)
