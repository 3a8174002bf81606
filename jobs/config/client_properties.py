"""A properties file of Kafka's clients, with a cluster's addresses and security settings.

The properties become keys of the cluster, unless the cluster's own file has these keys. Secrets
stay in the properties file: keys refer to them as `properties:FILE#NAME`, and a new connection
reads them. The module `client_property_names` lists the effect of each property.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.config.base import nearest
from jobs.config.client_property_names import (
    HARMLESS,
    KNOWN,
    LIBRDKAFKA,
    NO_EFFECT,
    PREFIXES,
    REFUSED,
    USED,
)
from jobs.config.key_stores import files_in, jaas_module, jaas_options, read_properties, resolved
from jobs.config.problems import Written
from metrics.common.errors import ConfigError

KEY = "client_properties"
REFERENCE = "properties"

IAM = "AWS_MSK_IAM"
_JAAS = "sasl.jaas.config"
_KRB5 = "Krb5LoginModule"
_OAUTH_CLIENT = "sasl.oauthbearer.client.credentials."
_IAM_HANDLER = "IAMOAuthBearerLoginCallbackHandler"
_HANDLERS = re.compile(
    rf"org\.apache\.kafka\..*|.*\.{_IAM_HANDLER}|.*\.IAMClientCallbackHandler"
    r"|io\.strimzi\.kafka\.oauth\.client\.JaasClientOauthLoginCallbackHandler"
)
"""Java classes of logins that this module implements without Java."""


def keys_of(path: str, own: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], Written]:
    """The keys that a properties file adds to a cluster, and the references for the run's record.

    If a value comes from a configuration provider or from sasl.jaas.config, the run records a
    reference instead of the value.

    Args:
        path: the properties file.
        own: keys of the cluster's own file. If the cluster's file has a key, the key replaces the
            properties with the same meaning, and the replaced properties are not checked.

    Raises:
        ConfigError: the file cannot be read, or has a property that is not supported.
    """
    file = _Properties(path, own or {})
    security = dict(file.security())
    given = file.client_id
    found = {"bootstrap_servers": file.servers, "client_id": given, "security": security}
    written = {
        "bootstrap_servers": file.reference_of(",".join(file.servers)),
        "client_id": file.reference_of(given),
    }
    for key, value in security.items():
        parts = value.items() if isinstance(value, dict) else ()
        written |= {f"security.{key}.{part}": file.reference_of(each) for part, each in parts}
        written[f"security.{key}"] = file.reference_of(value)
    return (
        {key: each for key, each in found.items() if each},
        {key: each for key, each in written.items() if each is not None},
    )


def read(path: str) -> dict[str, str]:
    """Read a properties file; add the value of each librdkafka property also under Kafka's name.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        given = read_properties(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cluster {KEY} is {path}, which cannot be read ({why}); expected a file of "
            "properties for the option --command-config of Kafka's tools; correct the path"
        ) from None
    for name, kafkas in LIBRDKAFKA.items():
        if name in given:
            given.setdefault(kafkas, given[name])
    return given


def secret(place: str) -> str:
    """The value of `FILE#NAME`: a property, or an option of sasl.jaas.config; empty if missing.

    Raises:
        ConfigError: the file cannot be read, or a configuration provider does not have the value.
    """
    path, _, name = place.rpartition("#")
    given = read(path)
    return _value(path, given, name) or _jaas_of(path, given, True).get(name, "")


def provider_files(path: str) -> list[str]:
    """The files from which configuration providers take the values for a properties file.

    Raises:
        ConfigError: the file cannot be read.
    """
    given = read(path)
    return [file for text in given.values() for file in files_in(text, given)]


def _value(path: str, given: Mapping[str, str], name: str) -> str:
    """The value of a property after configuration providers are resolved; empty if missing."""
    try:
        return resolved(given.get(name, ""), given).strip()
    except ValueError as error:
        raise ConfigError(f"cluster {KEY} is {path}, which has {name} with {error}") from None


def _jaas_of(path: str, given: Mapping[str, str], is_resolved: bool = False) -> dict[str, str]:
    """The options in the property sasl.jaas.config.

    Args:
        is_resolved: whether configuration providers in the options' values are resolved.
    """
    found = jaas_options(given.get(_JAAS, ""))
    if is_resolved or not found:
        found = jaas_options(_value(path, given, _JAAS))
    return found


_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


class _Properties:
    """The properties of a file, with the keys of the cluster's own file."""

    def __init__(self, path: str, own: Mapping[str, Any]) -> None:
        self._path, self._given = path, read(path)
        self._private: dict[str, str] = {}
        self._own_servers = own.get("bootstrap_servers")
        given = own.get("security")
        self._own: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        protocol = self._own.get("protocol") or self._get("security.protocol") or "PLAINTEXT"
        self._protocol = str(protocol).upper()
        self._mechanism = ""
        if self._protocol.startswith("SASL_"):
            self._mechanism = str(self._own.get("sasl_mechanism") or self._stated_mechanism())

    def reference_of(self, value: object) -> str | None:
        """The reference to a value from a provider or from sasl.jaas.config; None for other
        values.
        """
        if not isinstance(value, str) or not value:
            return None
        found = (name for text, name in self._private.items() if value in text or text in value)
        return next(map(self._reference, found), None)

    def _get(self, name: str) -> str:
        value = _value(self._path, self._given, name)
        if value and value != self._given[name].strip():
            self._private[value] = name
        return value

    def _option(self, jaas: Mapping[str, str], name: str) -> str:
        """An option of sasl.jaas.config after providers are resolved; empty if missing."""
        value = _value(self._path, {**self._given, name: jaas.get(name, "")}, name)
        if value:
            self._private[value] = name
        return value

    def _reference(self, name: str) -> str:
        return f"{REFERENCE}:{self._path}#{name}"

    @property
    def servers(self) -> list[str]:
        """The bootstrap servers as host:port, without the protocol that Kafka permits as a
        prefix.
        """
        if self._own_servers:
            return []
        found = (each.strip() for each in self._get("bootstrap.servers").split(","))
        return [re.sub(r"^[A-Za-z_]+://", "", each) for each in found if each]

    @property
    def client_id(self) -> str:
        """The client id of all connections; empty if not given."""
        return self._get("client.id")

    def security(self) -> Iterator[tuple[str, Any]]:
        """Key → value of `security`, without keys that contradict the cluster's own file."""
        self._require_known()
        if self._get("security.protocol"):
            yield "protocol", self._protocol
        if self._mechanism:
            yield "sasl_mechanism", self._mechanism
            yield from self._login()
        if self._protocol.endswith("SSL"):
            yield from self._tls()

    # --- properties that are refused --------------------------------------------

    def _require_known(self) -> None:
        for name in sorted(self._given):
            if not name.startswith(PREFIXES) or name in USED or name in NO_EFFECT:
                continue
            if name in LIBRDKAFKA or not self._concerns(name):
                continue
            if name not in REFUSED:
                close = nearest(name, KNOWN)
                meant = f"the nearest one is {close}; rename or" if close else "rename or"
                raise self._unsupported(
                    name, f"a property of Kafka's clients or of librdkafka; {meant} remove it"
                )
            if self._get(name).lower() not in ("", HARMLESS.get(name)):
                raise self._unsupported(name, REFUSED[name])

    def _concerns(self, name: str) -> bool:
        """Whether a property has an effect with this protocol and this login."""
        if name.startswith("sasl.oauthbearer."):
            return self._mechanism == "OAUTHBEARER" and "token_from" not in self._own
        if name.startswith("sasl.kerberos."):
            return self._mechanism == "GSSAPI"
        if name.startswith(("sasl.", "enable.sasl.")):
            return bool(self._mechanism)
        return name.startswith("security.") or self._protocol.endswith("SSL")

    def _unsupported(self, found: str, expected: str) -> ConfigError:
        return ConfigError(
            f"cluster {KEY} is {self._path}, which has {found}; expected {expected}; change the "
            f"file, or add keys of security to the cluster's file"
        )

    # --- logins -----------------------------------------------------------------

    def _stated_mechanism(self) -> str:
        mechanism = self._get("sasl.mechanism")
        handler = self._get("sasl.login.callback.handler.class")
        if mechanism == "OAUTHBEARER" and handler.endswith(_IAM_HANDLER):
            return IAM
        module = jaas_module(self._get(_JAAS)) if not mechanism else ""
        if not mechanism and (module not in ("", _KRB5) or "sasl.username" in self._given):
            raise self._unsupported(
                f"{f'{_JAAS} with {module}' if module else 'sasl.username'} and no sasl.mechanism",
                "sasl.mechanism=PLAIN, SCRAM-SHA-512 or another one, because the default is GSSAPI",
            )
        return mechanism or "GSSAPI"

    def _login(self) -> Iterator[tuple[str, Any]]:
        jaas = _jaas_of(self._path, self._given)
        if self._mechanism == "GSSAPI":
            yield from self._kerberos(jaas)
        elif self._mechanism == IAM:
            if "aws_region" not in self._own:
                yield "aws_region", self._region(jaas)
        elif self._mechanism == "OAUTHBEARER":
            if "token_from" not in self._own:
                yield from self._oauth(jaas)
        elif self._mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            yield from self._password(jaas)

    def _password(self, jaas: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        if jaas.get("tokenauth", "").lower() == "true":
            raise self._unsupported(
                f"{_JAAS} with tokenauth",
                "a user with a password, because delegation tokens are not supported",
            )
        yield self._needed("username_from", "sasl.username", "username", jaas)
        yield self._needed("password_from", "sasl.password", "password", jaas)

    def _needed(self, key: str, name: str, option: str, jaas: Mapping[str, str]) -> tuple[str, str]:
        """A key of `security`, and a reference to the place of the key's value.

        The place is the property `name`, or the option `option` in sasl.jaas.config.
        """
        found = name if name in self._given else option
        if found == option and option not in jaas and key not in self._own:
            raise self._unsupported(
                f"{_JAAS} without {option}" if _JAAS in self._given else f"no {_JAAS}",
                f"{option}=… in {_JAAS} (-Djava.security.auth.login.config is not read)",
            )
        return key, self._reference(found)

    def _kerberos(self, jaas: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The key kerberos_service_name; tickets come from the Kerberos settings of each host."""
        if "keyTab" in jaas:
            raise self._unsupported(
                f"{_JAAS} with keyTab",
                "no keytab in this file; use a ticket cache, or KRB5_CLIENT_KTNAME on the driver "
                "and on every executor",
            )
        service = self._get("sasl.kerberos.service.name") or self._option(jaas, "serviceName")
        if service:
            yield "kerberos_service_name", service

    def _region(self, jaas: Mapping[str, str]) -> str:
        """The AWS region, from the host names of MSK brokers or from environment variables."""
        for option in jaas:
            if re.match("aws(Profile|Role|Sts)", option):
                raise self._unsupported(
                    f"{_JAAS} with {option}",
                    "no credentials in this file; use AWS's default credential chain, such as "
                    "AWS_PROFILE in the environment",
                )
        own = self._own_servers if isinstance(self._own_servers, list) else []
        servers = [*map(str, own), *self.servers]
        found = _REGION.search(" ".join(servers))
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if found is None and not region:
            if not servers:
                raise self._unsupported(
                    f"sasl.mechanism {self._get('sasl.mechanism')} for MSK's IAM and no "
                    "bootstrap.servers",
                    "bootstrap_servers in the cluster's file, with host names that contain the AWS "
                    "region",
                )
            raise self._unsupported(
                f"sasl.mechanism {self._get('sasl.mechanism')} for MSK's IAM, and no region in "
                "the names of bootstrap.servers",
                "brokers such as b-1.name.abc123.c2.kafka.eu-west-1.amazonaws.com:9098, or "
                "security.aws_region in the cluster's file",
            )
        return found[1] if found else str(region)

    def _oauth(self, jaas: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
        for name in ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class"):
            if (made_by := self._get(name)) and not _HANDLERS.fullmatch(made_by):
                raise self._unsupported(
                    f"{name} {made_by}",
                    "a login class of Kafka, AWS or Strimzi, because other Java classes do not run "
                    "here; write tokens into a file, and name the file in security.token_from",
                )
        retriever = self._get("sasl.oauthbearer.jwt.retriever.class").rpartition(".")[2]
        if retriever not in (
            "", "DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"
        ):  # fmt: skip
            raise self._unsupported(
                f"sasl.oauthbearer.jwt.retriever.class {retriever}",
                "ClientCredentialsJwtRetriever or FileJwtRetriever, because assertions are not "
                "supported; or security.token_from with a token that another process renews",
            )
        url = self._get("sasl.oauthbearer.token.endpoint.url")
        url = url or self._option(jaas, "oauth.token.endpoint.uri")
        if url.startswith("file:"):
            yield "token_from", "file:" + re.sub("^file:(//)?", "", url)
            return
        if "oauth.access.token" in jaas:
            yield "token_from", self._reference("oauth.access.token")
            return
        if not url and "oauth_token_url" not in self._own:
            raise self._unsupported(
                "sasl.mechanism OAUTHBEARER and no sasl.oauthbearer.token.endpoint.url",
                "the address of the token server, because unsecured tokens are not supported",
            )
        yield "oauth_token_url", url
        is_strimzi = "oauth.client.id" in jaas
        names = ("oauth.client.id", "oauth.client.secret") if is_strimzi else (
            "clientId", "clientSecret"
        )  # fmt: skip
        yield self._needed("oauth_client_id_from", f"{_OAUTH_CLIENT}client.id", names[0], jaas)
        yield self._needed(
            "oauth_client_secret_from", f"{_OAUTH_CLIENT}client.secret", names[1], jaas
        )
        yield from self._oauth_details(jaas)

    def _oauth_details(self, jaas: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
        """The keys for the scope, the extensions, the secret's encoding and the server's
        authority.
        """
        scopes = (self._get("sasl.oauthbearer.scope"), self._option(jaas, "scope"))
        if scope := next(filter(None, (*scopes, self._option(jaas, "oauth.scope"))), None):
            yield "oauth_scope", scope
        pairs = re.findall(r"([^=,\s]+)=([^,]*)", self._get("sasl.oauthbearer.extensions"))
        extensions = {name: value.strip() for name, value in pairs} | {
            name.removeprefix("extension_"): self._option(jaas, name)
            for name in jaas
            if name.startswith("extension_")
        }
        if extensions:
            yield "oauth_extensions", extensions
        encodes = self._get("sasl.oauthbearer.header.urlencode").lower() == "true"
        yield "oauth_urlencode", encodes
        for option in jaas:
            if re.fullmatch(
                r"(oauth\.)?ssl\.(truststore\.certificates|keystore\..*)"
                r"|oauth\.(audience|refresh\.token|password\..*|client\.assertion.*)", option
            ):  # fmt: skip
                raise self._unsupported(
                    f"{_JAAS} with {option}",
                    "only a client's id and secret, and ssl.truststore.location for the token "
                    "server's authority; remove the option, or set security.token_from",
                )
        for prefix in ("", "oauth."):
            if path := self._option(jaas, f"{prefix}ssl.truststore.location"):
                yield "oauth_cafile", path
                if (name := f"{prefix}ssl.truststore.password") in jaas:
                    yield "oauth_cafile_password_from", self._reference(name)
        if path := self._get("https.ca.location"):
            yield "oauth_cafile", path

    # --- TLS --------------------------------------------------------------------

    def _tls(self) -> Iterator[tuple[str, Any]]:
        if "ssl.endpoint.identification.algorithm" in self._given:
            value = self._get("ssl.endpoint.identification.algorithm").lower()
            yield "check_hostname", value not in ("", "none")
        if not {"cafile", "ca_pem_from"} & set(self._own):
            yield from self._authorities()
        if not {"certfile", "keyfile", "certificate_pem_from"} & set(self._own):
            yield from self._certificate()

    def _authorities(self) -> Iterator[tuple[str, Any]]:
        if path := self._get("ssl.truststore.location"):
            self._require_kind("truststore")
            yield "cafile", path
            if "ssl.truststore.password" in self._given:
                yield "cafile_password_from", self._reference("ssl.truststore.password")
        elif "ssl.truststore.certificates" in self._given:
            yield "ca_pem_from", self._reference("ssl.truststore.certificates")
        elif (path := self._get("ssl.ca.location")) and path != "probe":
            yield "cafile", path

    def _certificate(self) -> Iterator[tuple[str, Any]]:
        key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
        if path := self._get("ssl.keystore.location"):
            self._require_kind("keystore")
            yield "certfile", path
            if self._get("ssl.keystore.type").upper() == "PEM":
                yield "keyfile", path
            elif "ssl.keystore.password" in self._given:
                yield "certfile_password_from", self._reference("ssl.keystore.password")
            else:
                raise self._unsupported(
                    "ssl.keystore.location without ssl.keystore.password",
                    "the password of the store, or ssl.keystore.type=PEM",
                )
        elif key in self._given or chain in self._given:
            for name, other in ((key, chain), (chain, key)):
                if name not in self._given:
                    raise self._unsupported(f"{other} without {name}", f"both of them; add {name}")
            yield "key_pem_from", self._reference(key)
            yield "certificate_pem_from", self._reference(chain)
        elif path := self._get("ssl.certificate.location"):
            yield "certfile", path
            yield "keyfile", self._get("ssl.key.location") or path
        else:
            return
        if "ssl.key.password" in self._given:
            yield "key_password_from", self._reference("ssl.key.password")

    def _require_kind(self, store: str) -> None:
        name = f"ssl.{store}.type"
        kind = self._get(name) or "JKS"
        if kind.upper() not in ("JKS", "PKCS12", "PEM"):
            raise self._unsupported(
                f"{name} {kind}",
                "JKS, PKCS12 or PEM; convert it by keytool -importkeystore -deststoretype PKCS12",
            )
