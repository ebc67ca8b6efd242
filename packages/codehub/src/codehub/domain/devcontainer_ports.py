"""Ports in devcontainer.json: which to expect, and their labels. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from codehub.domain.devcontainer_support import Unsupported
from codehub.domain.errors import Invalid

_ATTRIBUTES = {
    "onAutoForward": Unsupported.EVERY_PORT,
    "protocol": Unsupported.HTTP,
    "requireLocalPort": Unsupported.LOCAL_PORT,
    "elevateIfNeeded": Unsupported.LOCAL_PORT,
}
# Values that describe what happens anyway.
_HONOURED = {"onAutoForward": "silent", "protocol": "http"}


def parse_port(item: object) -> int | None:
    """Return the number of `3000`, `"3000"` or `"db:5432"`, or None for anything else."""
    number = item.rpartition(":")[2] if isinstance(item, str) else item
    if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) <= 5:
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 65_535:
        return None
    return number


class PortAttributes:
    """Reads `portsAttributes` and `otherPortsAttributes`; an attribute without effect is noted once, not for each port."""

    def __init__(self) -> None:
        self.labels: dict[int, str] = {}
        self.ignored: dict[str, Unsupported] = {}

    def read(self, key: str, table: Mapping[str, object]) -> None:
        for name, attributes in table.items():
            if not isinstance(attributes, dict):
                raise Invalid(f"{key}.{name} is an object")
            self._read_one(key, attributes, parse_port(name), f"{key}.{name}")

    def read_others(self, key: str, attributes: Mapping[str, object]) -> None:
        self._read_one(key, attributes, None, f"{key}.label")

    def _read_one(self, key: str, attributes: Mapping[str, object], port: int | None, place: str) -> None:
        label = attributes.get("label", "")
        if not isinstance(label, str):
            raise Invalid(f"{place}: a label is a text")
        if label and port is None:
            self.ignored[place] = Unsupported.PORT_PATTERN
        elif label and port is not None:
            self.labels[port] = label
        for name, value in attributes.items():
            if name != "label" and value not in (None, False, "", _HONOURED.get(name)):
                self.ignored[f"{key}.{name}"] = _ATTRIBUTES.get(name, Unsupported.UNKNOWN)
