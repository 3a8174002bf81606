"""The properties of Kafka's clients and of librdkafka, and their effect on this suite's
connections.

A test checks that each key of Kafka's CommonClientConfigs, SslConfigs, SaslConfigs and
SecurityConfig is in exactly one of `USED`, `NO_EFFECT` and `REFUSED`.
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIXES = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.")
"""Prefixes of the properties that may affect a connection; all other properties have no effect."""

LIBRDKAFKA: Mapping[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""librdkafka's name of a property → Kafka's name of the property."""

# The last two rows are librdkafka's properties.
_USED = """
    bootstrap.servers client.id security.protocol sasl.mechanism sasl.jaas.config
    sasl.client.callback.handler.class sasl.login.callback.handler.class
    sasl.kerberos.service.name sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.scope
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwt.retriever.class ssl.truststore.location ssl.truststore.password
    ssl.truststore.type ssl.truststore.certificates ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.keystore.key ssl.keystore.certificate.chain ssl.key.password
    ssl.endpoint.identification.algorithm
    sasl.username sasl.password sasl.oauthbearer.extensions ssl.ca.location
    ssl.certificate.location ssl.key.location https.ca.location
"""
USED = frozenset(_USED.split())
"""Properties with an effect on this suite's connections."""

_LOAD = """
    client.dns.lookup client.rack connections.max.idle.ms default.api.timeout.ms
    default.list.key.serde.inner default.list.key.serde.type default.list.value.serde.inner
    default.list.value.serde.type enable.metrics.push group.id group.instance.id
    heartbeat.interval.ms max.poll.interval.ms metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.context. metrics.num.samples metrics.recording.level metrics.sample.window.ms
    rebalance.timeout.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms send.buffer.bytes
    session.timeout.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
"""
_JAVA = """
    security.providers ssl.cipher.suites ssl.enabled.protocols ssl.keymanager.algorithm
    ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    ssl.curves.list ssl.sigalgs.list ssl.ca.certificate.stores ssl.providers
"""
_RENEWAL = """
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.kerberos.principal sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    enable.sasl.oauthbearer.unsecure.jwt sasl.oauthbearer.method
"""
_BROKER = """
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.sub.claim.name sasl.enabled.mechanisms sasl.mechanism.inter.broker.protocol
    security.inter.broker.protocol ssl.client.auth ssl.principal.mapping.rules
"""
WITHOUT_EFFECT: Mapping[str, frozenset[str]] = {
    "the workload and the goal describe the load": frozenset(_LOAD.split()),
    "it configures Java's TLS; Python's ssl negotiates TLS 1.2 or later": frozenset(_JAVA.split()),
    "redline renews tokens at 80 % of their lifetime, and Kerberos on each host renews its "
    "tickets": frozenset(_RENEWAL.split()),
    "only brokers use it, or clients that check a token before the brokers check it": frozenset(
        _BROKER.split()
    ),
}
"""Reason → properties without an effect on this suite's connections."""
NO_EFFECT = frozenset().union(*WITHOUT_EFFECT.values())
"""Properties without an effect on this suite's connections."""

# The last two properties are librdkafka's.
_ASSERTIONS = """
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.grant.type
"""
_ASSERTION = (
    "no assertion, because assertions are not supported; set client credentials "
    "(sasl.oauthbearer.client.credentials.client.id and .client.secret), or set "
    "security.token_from in the cluster's file to a token that another process renews"
)

REFUSED: Mapping[str, str] = {
    "sasl.login.class": "no login class, because Java classes do not run here; remove it, or use "
    "security.token_from in the cluster's file",
    "ssl.engine.factory.class": "no engine factory, because Java classes do not run here; name the "
    "files in ssl.truststore.location and ssl.keystore.location",
    **dict.fromkeys(_ASSERTIONS.split(), _ASSERTION),
    "sasl.oauthbearer.metadata.authentication.type": "client credentials "
    "(sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret); or security.token_from",
    "sasl.oauthbearer.config": "sasl.oauthbearer.method=oidc with a client's id and secret, "
    "because unsecured tokens are not supported; or security.token_from in the cluster's file",
    "sasl.kerberos.keytab": "no keytab in this file; use a ticket cache, or KRB5_CLIENT_KTNAME on "
    "the driver and on every executor",
    "enable.ssl.certificate.verification": "verified certificates; remove the property, and name "
    "the brokers' authority in ssl.ca.location",
    "ssl.crl.location": "no list of revoked certificates, because the suite does not check such a "
    "list; remove the property",
    "https.ca.pem": "https.ca.location; write these certificates into a file, and name the file",
    "ssl.engine.location": "certificate and key in files; give their paths in "
    "ssl.certificate.location and ssl.key.location",
    "ssl.key": "ssl.key.pem or ssl.key.location; rename it",
    "ssl.certificate": "ssl.certificate.pem or ssl.certificate.location; rename it",
    "ssl.ca": "ssl.ca.pem or ssl.ca.location; rename it",
}
"""Refused property → expected property and advice, as the end of a message."""

HARMLESS: Mapping[str, str] = {
    "enable.ssl.certificate.verification": "true",
    "sasl.oauthbearer.grant.type": "client_credentials",
}
"""Refused property → accepted value. With this value the property has no effect."""

KNOWN = tuple(sorted({*USED, *NO_EFFECT, *REFUSED, *LIBRDKAFKA}))
