"""Formats of texts in Kubernetes objects: a regular expression and the most characters."""

import re
from typing import NamedTuple


class Format(NamedTuple):
    """A format of texts.

    Attributes:
        description: A noun for messages, such as "a DNS label".
        maximum: The most characters.
        pattern: What the whole text matches.
    """

    description: str
    maximum: int
    pattern: re.Pattern[str]

    def matches(self, text: str) -> bool:
        """Return whether a text has this format."""
        return len(text) <= self.maximum and self.pattern.fullmatch(text) is not None


def _format(description: str, maximum: int, pattern: str) -> Format:
    return Format(description, maximum, re.compile(pattern, re.ASCII | re.DOTALL))


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_MIXED_LABEL = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_MIXED_SUBDOMAIN = rf"{_MIXED_LABEL}(\.{_MIXED_LABEL})*"
_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_SHORT_PREFIX = "(?![^/]{254})"
_QUALIFIED_NAME = f"{_SHORT_PREFIX}({_SUBDOMAIN}/)?{_NAME}"
_DOMAIN_NAME = f"{_SUBDOMAIN}/{_NAME}"
_PART = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_LABEL_KEY = rf"labels\['({_SUBDOMAIN}/)?{_NAME}"
_ANNOTATION_KEY = rf"annotations\['({_MIXED_SUBDOMAIN}/)?{_NAME}"
_METADATA_KEY = rf"metadata\.({_LABEL_KEY}|{_ANNOTATION_KEY})'\]"
_COUNTED = (
    r"pods|persistentvolumeclaims|services(\.loadbalancers|\.nodeports)?|configmaps|secrets|"
    "replicationcontrollers|resourcequotas"
)
_COMPUTE = r"(requests\.|limits\.)?(cpu|memory|ephemeral-storage)"
_CEL_RESERVED = (
    "true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|"
    "namespace|return|var|void|while"
)

ANY_TEXT = _format("any text", 65536, r"[\s\S]+")
TEXT_OR_EMPTY = _format("a text", 1048576, r"[\s\S]*")
SINGLE_LINE = _format("a single line that is not blank", 65536, r"(?=.*\S)[^\n\r]*")
TRIMMED = _format("a text without spaces around it", 32768, r"\S((?s:.)*\S)?")

DNS_LABEL = _format("a DNS label", 63, _LABEL)
DNS_LABEL_1035 = _format("a DNS label that begins with a letter", 63, "[a-z]([-a-z0-9]*[a-z0-9])?")
FAILURE_RULE_NAME = _format(
    "a letter, with letters, digits and _,: after it",
    128,
    "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
)
KIND_NAME = _format(
    "a DNS label of any case that begins with a letter", 63, "[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?"
)
DNS_SUBDOMAIN = _format("a DNS subdomain", 253, _SUBDOMAIN)
# Of a name that ends with a dash, Kubernetes reads the last two characters as one letter
# (kubernetes, pkg/api/validation/generic.go, maskTrailingDash).
DNS_SUBDOMAIN_OR_BEGINNING = _format(
    "a DNS subdomain", 253, rf"{_SUBDOMAIN}|({_LABEL}\.)*([a-z0-9][-a-z0-9]*)?.-"
)
DNS_SUBDOMAIN_ANY_CASE = _format("a DNS subdomain in any case", 63, _MIXED_SUBDOMAIN)
DNS_SUBDOMAIN_52 = _format("a DNS subdomain of at most 52 characters", 52, _SUBDOMAIN)
DNS_SUBDOMAIN_63 = _format("a DNS subdomain of at most 63 characters", 63, _SUBDOMAIN)
DNS_SUBDOMAIN_64 = _format("a DNS subdomain of at most 64 characters", 64, _SUBDOMAIN)
_NOT_SYSTEM = f"(?!system-){_SUBDOMAIN}"
USER_PRIORITY_CLASS = _format("a DNS subdomain that does not begin with system-", 253, _NOT_SYSTEM)
FULL_DOMAIN_NAME = _format(
    "a DNS subdomain, with or without a dot at its end", 254, rf"{_SUBDOMAIN}\.?"
)
TWO_PART_DOMAIN = _format("a domain of at least two parts", 253, rf"{_LABEL}(\.{_LABEL})+")
THREE_PART_DOMAIN = _format("a domain of at least three parts", 253, rf"{_LABEL}(\.{_LABEL}){{2,}}")
INGRESS_HOST = _format("a host of an Ingress", 253, rf"(?![0-9]+(\.[0-9]+)+$)(\*\.)?{_SUBDOMAIN}")
CERTIFICATE_HOST = _format("a host of a certificate", 253, rf"(\*\.)?{_SUBDOMAIN}")
SEARCH_DOMAIN = _format("a search domain", 254, rf"\.|_?{_PART}(\._?{_PART})*\.?")
ADDRESS = _format("an address", 64, "(?!(?i:::ffff:[0-9]))[0-9a-fA-F:.]+")
CIDR_TEXT = _format("an address with a prefix", 64, "(?!(?i:::ffff:[0-9.]+))[^/]+/(0|[1-9][0-9]*)")
_OWN = r"0\.0\.0\.0$|127\.|169\.254\.|224\.0\.0\.|::1?$|(?i:fe[89ab].|ff02|::ffff):"
OTHER_MACHINE = _format("an address of another machine", 64, f"(?!{_OWN}).*")

QUALIFIED_NAME = _format("a qualified name", 317, _QUALIFIED_NAME)
QUALIFIED_NAME_ANY_CASE = _format("a qualified name in any case", 317, f"(?i:{_QUALIFIED_NAME})")
LABEL_VALUE = _format("the value of a label", 63, f"({_NAME})?")
FINALIZER = _format("a finalizer", 317, f"orphan|foregroundDeletion|kubernetes|{_DOMAIN_NAME}")
DOMAIN_PATH = _format(
    "a name with a domain", 317, rf"{_SUBDOMAIN}/[-A-Za-z0-9/._~%!$&'()*+,\x3b=:]+"
)
API_VERSION = _format("an API version", 65536, "([^/]*/)?[^/]+")
GROUP_VERSION = _format("a group with a version", 253, "[^/]+/[^/]*")
OPTIONAL_GROUP_VERSION = _format("a group, with or without a version", 253, "[^/]*(/[^/]*)?")
_VERSION = f"(({_SUBDOMAIN})?/)?[a-z]([-a-z0-9]{{0,61}}[a-z0-9])?"
VERSION_WITH_GROUP = _format("a version, with or without a group", 317, _VERSION)
DRIVER_NAME = _format("the name of a driver", 63, _MIXED_SUBDOMAIN)
PROVISIONER_NAME = _format("the name of a provisioner", 317, f"({_MIXED_SUBDOMAIN}/)?{_NAME}")
PORT_NAME = _format("the name of a port", 15, f"(?=.*[a-z])(?!.*--){_LABEL}")
SYSCTL = _format("the name of a sysctl", 253, f"({_PART}[./])*{_PART}")
SYSCTL_OUTSIDE_NETWORK = _format("a sysctl that is not of the network", 253, "(?!net[./]).+")
SYSCTL_OUTSIDE_IPC = _format(
    "a sysctl that is not of shared memory", 253, r"(?!kernel[./](shm|msg|sem)|fs[./]mqueue[./]).+"
)
FEATURE_NAME = _format("the name of a feature", 253, "[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*")
TIME_ZONE_NAME = _format("the name of a time zone", 253, "(?!(?i:local)$).+")
_WINDOWS = r'(?!.*[\x00-\x1f])([^\\]{1,255}\\)?(?![. ]+$)[^"/\\:\x3b|=,+*?<>@\[\]]{1,104}'
WINDOWS_USER = _format("the name of a Windows user", 361, _WINDOWS)
CEL_NAME = _format("a name in CEL", 253, f"(?!(?:{_CEL_RESERVED})$)[_a-zA-Z][_a-zA-Z0-9]*")
HTTP_HEADER = _format("the name of an HTTP header", 32768, "[-A-Za-z0-9]+")
VARIABLE_NAME = _format("printable text without =", 32768, "[ -<>-~]+")
CONFIG_KEY = _format("a config key", 253, r"(?!\.\.?$|\.\.)[-._A-Za-z0-9]+")
ISCSI_NAME = _format(
    "an iSCSI name",
    253,
    r"iqn\.[0-9]{4}-[0-9]{2}\.[-.A-Za-z0-9]+(:[^,\x3b*&$|\s]+)|"
    "eui.[A-Za-z0-9]{16}|naa.[A-Za-z0-9]{32}",
)
NOT_SYS_ADMIN = _format("a capability other than CAP_SYS_ADMIN", 253, "(?!CAP_SYS_ADMIN$).+")

ABSOLUTE_PATH = _format("an absolute path", 32768, "/.*")
PATH_WITHOUT_BACKSTEPS = _format("a path without ..", 32768, r"(?!(.*/)?\.\.(/|$)).*")
INNER_PATH = _format("a relative path without ..", 32768, r"(?!/|(.*/)?\.\.(/|$)).*")
INNER_FILE = _format(
    "a relative path that neither begins with .. nor has it as a part",
    32768,
    r"(?!/|\.\.|.*/\.\.(/|$)).*",
)
CLEAN_URL_PATH = _format(
    "a path without // or /. or %2F", 32768, r"(?!.*(//|/\.\.?(/|$)|%2[fF]))/.*"
)
DNS_NAMES_PATH = _format("a path of DNS names", 65536, rf"/|(/{_SUBDOMAIN})+/?")
PATH_SEGMENT = _format("a segment of a path", 32768, r"(?!\.\.?$)[^/%]+")
HTTPS_URL = _format("a URL with https", 65536, r"https://[^/?#@\s]+(/[^?#\s]*)?")
JSON_PATH = _format("a path in JSON", 65536, r"\..*")
JSON_FIELD_PATH = _format("a path in JSON without lists", 65536, r"(\.[^.[\]\s]+)+")
FILE_FIELD = _format(
    "a field for a file", 317, rf"metadata\.(name|namespace|uid|labels|annotations)|{_METADATA_KEY}"
)
VARIABLE_FIELD = _format(
    "a field for an environment variable",
    317,
    rf"metadata\.(name|namespace|uid)|spec\.(nodeName|serviceAccountName)|"
    rf"status\.(host|pod)IPs?|{_METADATA_KEY}",
)
_RESOURCE_FIELD = r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.*)"
RESOURCE_FIELD = _format("a field of a container's resources", 253, _RESOURCE_FIELD)
_MICROSECONDS = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[-+]\d\d:\d\d)"
MICROSECOND_TIME = _format("a time with microseconds", 64, _MICROSECONDS)

LIMIT_TYPE = _format(
    "the type of a limit", 317, f"Container|PersistentVolumeClaim|Pod|{_SHORT_PREFIX}{_DOMAIN_NAME}"
)
RESOURCE = _format(
    "a resource",
    317,
    rf"{_COMPUTE}|storage|requests\.storage|{_COUNTED}|"
    rf"(requests\.)?hugepages-([-A-Za-z0-9_.]{{0,52}}[A-Za-z0-9])?|{_SHORT_PREFIX}{_DOMAIN_NAME}",
)
QUOTA_RESOURCE = _format(
    "a resource of a quota",
    317,
    rf"{_COMPUTE}|requests\.storage|(requests\.)?hugepages-.+|{_COUNTED}|"
    f"{_SHORT_PREFIX}{_DOMAIN_NAME}",
)
_EXTENDED = rf"(?!requests\.)(?![^/]*kubernetes\.io/)(?![^/]{{245}}){_DOMAIN_NAME}"
COUNTED_RESOURCE = _format("a resource in whole numbers", 317, f"{_COUNTED}|{_EXTENDED}")
CONTAINER_RESOURCE = _format(
    "a resource of a container",
    317,
    r"cpu|memory|ephemeral-storage|hugepages-([-A-Za-z0-9_.]{0,52}[A-Za-z0-9])?|"
    rf"(?!requests\.)(?![^/]{{245}}(?<!kubernetes\.io)){_DOMAIN_NAME}",
)
CLUSTER_IP_FAMILY = _format(
    "what the cluster's networks allow", 64, "IPv4|SingleStack|PreferDualStack|None"
)
# Source: kuberay validation.go validateInitializingTimeout (Go's ParseDuration, or a number).
POSITIVE_TIME = _format(
    "a duration such as 30m, or seconds, above 0",
    65536,
    r"(?=.*[1-9])\+?([0-9]+|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)",
)

FORMATS = {name.lower(): value for name, value in vars().items() if isinstance(value, Format)}
"""The formats by the names that the tables of fields use, such as "dns_label"."""

TRUE_TEXTS = ("1", "t", "T", "true", "TRUE", "True")
FALSE_TEXTS = ("0", "f", "F", "false", "FALSE", "False")
"""What Go's ParseBool reads."""
