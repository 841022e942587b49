"""Of all that can be in a request, only the key gets into a certificate, and only for its node."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.kube import signing
from leadline_controller.kube.signing import RefusedError, Request, SigningError, node_of, sign
from leadline_controller.parsing.typed import decode

from tests.kube.agent_requests import issuing, request, text_of
from tests.support.certificates import Authority

NODES = ("n1", "n2")
GOOD: dict[str, Any] = {
    "signerName": signing.SIGNER,
    "username": signing.AGENT,
    "usages": ["client auth", "digital signature"],
    "extra": {signing.NODE_NAME: ["n1"], "authentication.kubernetes.io/pod-name": ["a-1"]},
}
# One field that is not as it must be.
WRONG = st.one_of(
    st.fixed_dictionaries({"signerName": st.text().filter(lambda t: t != signing.SIGNER)}),
    st.fixed_dictionaries(
        {
            "username": st.one_of(
                st.text(),
                st.sampled_from(
                    [f"{signing.AGENT} ", signing.AGENT.replace("kube-system", "default")]
                ),
            ).filter(lambda t: t != signing.AGENT)
        }
    ),
    st.fixed_dictionaries(
        {
            "usages": st.lists(
                st.sampled_from([*signing.USAGES, "server auth", "cert sign", ""])
            ).filter(lambda found: set(found) != signing.USAGES)
        }
    ),
    st.fixed_dictionaries(
        {
            "extra": st.dictionaries(
                st.sampled_from([signing.NODE_NAME, "node-name"]),
                st.lists(st.sampled_from([*NODES, "n3", "", "leadline-controller"])),
            ).filter(lambda extra: extra.get(signing.NODE_NAME) not in (["n1"], ["n2"]))
        }
    ),
)


def read(spec: dict[str, Any]) -> Request:
    return decode({"metadata": {"name": "r"}, "spec": spec}, Request, "request")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_a_pod_gets_a_certificate_for_its_node() -> None:
    assert node_of(read(GOOD), NODES) == "n1"


@given(WRONG)
def test_whoever_is_not_wholly_as_expected_gets_none(wrong: dict[str, Any]) -> None:
    nodes = (*NODES, "leadline-controller")
    with pytest.raises(RefusedError) as refused:
        node_of(read({**GOOD, **wrong}), nodes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key_type", ["ec", "rsa"])
def test_nothing_of_a_request_but_its_key_is_certified(
    key_type: str, authority: Authority, tmp_path: Path
) -> None:
    asked = request("/CN=n1", key_type=key_type, extension="basicConstraints=CA:TRUE")
    signed = text_of(sign(asked, "n1", issuing(authority)), tmp_path)
    assert re.search(r"Subject: CN=n1\n", signed)
    assert "CA:FALSE" in signed
    assert "CA:TRUE" not in signed
    assert "TLS Web Client Authentication\n" in signed
    again = text_of(sign(asked, "n1", issuing(authority)), tmp_path)
    serials = [re.findall(r"Serial Number:\s+(\S+)", each) for each in (signed, again)]
    assert serials[0] != serials[1]


@pytest.mark.parametrize(
    "subject",
    ["/CN=n2", "/CN=n1/CN=n2", "/O=n1", "/CN=n1+O=x", "/CN=n1 ", "/CN=n1\nsubject=CN=n1", "/CN=N1"],
)
def test_a_request_of_another_name_is_refused(subject: str, authority: Authority) -> None:
    with pytest.raises(RefusedError, match="expected the subject CN=n1 and nothing else"):
        sign(request(subject), "n1", issuing(authority))


def test_a_request_with_another_key_than_it_is_signed_with_is_refused(
    authority: Authority,
) -> None:
    pem = base64.b64decode(request("/CN=n1")).decode()
    lines = pem.splitlines()
    der = bytearray(base64.b64decode("".join(lines[1:-1])))
    der[-5] ^= 1  # of the signature
    body = base64.b64encode(der).decode()
    forged = f"{lines[0]}\n{body}\n{lines[-1]}\n"
    with pytest.raises(RefusedError, match="not a signed"):
        sign(base64.b64encode(forged.encode()).decode(), "n1", issuing(authority))


@given(st.one_of(st.text(max_size=50), st.binary(max_size=50).map(lambda b: base64.b64encode(b))))
def test_junk_is_refused(authority: Authority, junk: str | bytes) -> None:
    text = junk if isinstance(junk, str) else junk.decode()
    with pytest.raises(RefusedError):
        sign(text, "n1", issuing(authority))


def test_a_large_request_is_not_even_read(authority: Authority) -> None:
    large = base64.b64encode(bytes(signing.MAX_REQUEST_BYTES + 1)).decode()
    with pytest.raises(RefusedError, match="more than 8192 bytes"):
        sign(large, "n1", issuing(authority))


def test_an_authority_that_cannot_sign_is_said(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "ca.key").write_text("no key")
    (tmp_path / "ca.pem").write_bytes(authority.ca_file.read_bytes())
    broken = signing.IssuingSettings(tmp_path / "ca.pem", tmp_path / "ca.key")
    with pytest.raises(SigningError, match="CA private key"):
        sign(request("/CN=n1"), "n1", broken)
