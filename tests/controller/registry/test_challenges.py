"""What registries send as WWW-Authenticate, and which login that offers."""

from __future__ import annotations

import pytest
from leadline_controller.registry.challenges import challenges

REALM = "https://auth.example/token"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], []),
        ([""], []),
        ([", ,"], []),
        (["Negotiate"], []),
        (["Basic"], [("basic", {})]),
        (['BASIC realm="Nexus"'], [("basic", {"realm": "Nexus"})]),
        (['Basic realm="a", charset="UTF-8"'], [("basic", {"realm": "a", "charset": "UTF-8"})]),
        # Several headers, or one with several challenges: a bearer token comes first.
        (["Negotiate", 'Basic realm="r"'], [("basic", {"realm": "r"})]),
        (['Negotiate, Basic realm="r"'], [("basic", {"realm": "r"})]),
        (['NTLM,Basic realm="r"'], [("basic", {"realm": "r"})]),
        (
            ['Basic realm="r"', f'Bearer realm="{REALM}",service="s"'],
            [("bearer", {"realm": REALM, "service": "s"}), ("basic", {"realm": "r"})],
        ),
        (
            [f'Basic realm="r", Bearer realm="{REALM}", service="s", Digest nonce="a, b"'],
            [("bearer", {"realm": REALM, "service": "s"}), ("basic", {"realm": "r"})],
        ),
        # A token68 in place of parameters.
        (["Negotiate YIIJ/+x==, Basic realm=r"], [("basic", {"realm": "r"})]),
        (["Basic abc=", "Bearer abc"], [("bearer", {}), ("basic", {})]),
        # Quotes: commas, names and escaped quotes within them.
        (['Basic realm="a, Bearer realm=b"'], [("basic", {"realm": "a, Bearer realm=b"})]),
        ([r'Basic realm="a \"b\", c\\"'], [("basic", {"realm": 'a "b", c\\'})]),
        (['Basic realm=""'], [("basic", {"realm": ""})]),
        (['Basic realm="r'], [("basic", {})]),
        (
            ['Basic realm="r', f'Bearer realm="{REALM}"'],
            [("bearer", {"realm": REALM}), ("basic", {})],
        ),
        # Without quotes, with spaces around "=", other cases, without commas, twice.
        ([f"Bearer realm={REALM},service=s"], [("bearer", {"realm": REALM, "service": "s"})]),
        (
            [f"bearer\tRealm = {REALM}?a=b&c= , SERVICE= 's'"],
            [("bearer", {"realm": f"{REALM}?a=b&c=", "service": "'s'"})],
        ),
        ([f'Bearer realm="{REALM}" service="s"'], [("bearer", {"realm": REALM, "service": "s"})]),
        (['Basic realm="a", realm="b"'], [("basic", {"realm": "a"})]),
        (['realm="r"'], []),
        (['"Bearer" realm="r"'], []),
    ],
)
def test_what_can_be_answered_is_found(
    headers: list[str], expected: list[tuple[str, dict[str, str]]]
) -> None:
    assert challenges(headers) == expected


@pytest.mark.parametrize("text", ['a="', "a=", "a ", '"', "\\", "a" * 99 + " ", 'B a="\\"', " "])
def test_long_nonsense_is_read_once(text: str) -> None:
    found = challenges([f"Basic realm=r, {text * 100_000}"])
    assert [each.parameters["realm"] for each in found] == ["r"]
