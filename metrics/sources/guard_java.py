"""The Java classes that protect the driver's JVM from the answers of the brokers' JMX.

JMX's client side creates objects of any class that an answer names. It uses the JVM's default TLS
context, and does not check the host's name. Neither can be configured for one connection.

RMI resolves classes by the class loader of its caller, or by that of its thread. So the poller is
defined by a class loader of this module, which its threads use, too. This loader knows Java's own
classes and none of Spark's. It replaces Java's `SslRMIClientSocketFactory` by one that trusts the
source's certificates and checks the host's name.

The JVM gets a filter (JEP 290) that asks the thread's class loader where that is a filter itself,
and decides nothing elsewhere. So each source has its own filter, and the rest of the JVM is not
affected. A filter that the JVM was started with takes precedence over this one.

Janino compiles the classes, hence the plain style.
"""

from __future__ import annotations

from metrics.sources.java_class import java_source

NAME = "RedlineJmxGuard"

SOURCE = java_source(__package__, NAME)

SOCKETS_NAME = "SslRMIClientSocketFactory"
SOCKETS_SOURCE = java_source(__package__, SOCKETS_NAME)

FILTER_NAME = "RedlineJmxFilter"

FILTER_SOURCE = java_source(__package__, FILTER_NAME)
