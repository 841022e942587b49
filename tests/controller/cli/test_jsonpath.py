"""Templates give what kubectl's give, and any text is a template or one line that says why not."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.cli.jsonpath import Path, PathError, Template

from tests.support.examples import examples

# The example of https://kubernetes.io/docs/reference/kubectl/jsonpath/, and one more node.
DOCUMENT: dict[str, Any] = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {"capacity": {"cpu": "4"}, "pods": 3, "ready": True},
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {"capacity": {"cpu": "8"}, "pods": 12, "ready": False},
        },
    ],
    "users": [
        {"name": "myself", "user": {}},
        {"name": "e2e", "user": {"username": "admin", "password": None}},
    ],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.kind}", "List"),
        ("{$.kind}", "List"),
        ("{['kind']}", "List"),
        ("the kind is {.kind}", "the kind is List"),
        ("{.users[0].name}", "myself"),
        ("{.users[-1].name}", "e2e"),
        ("{.users[9].name}", ""),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.items[0:1].metadata.name}", "127.0.0.1"),
        ("{.items[1:].metadata.name}", "127.0.0.2"),
        ('{.users[?(@.name=="e2e")].user.username}', "admin"),
        ("{.items[?(@.status.pods > 5)].metadata.name}", "127.0.0.2"),
        ("{.items[?(@.status.ready==true)].metadata.name}", "127.0.0.1"),
        ("{.items[?(@.metadata.labels)].metadata.name}", "127.0.0.1"),
        ("{.users[?(@.name < 5)].name}", ""),
        ("{.items[0].metadata.labels.kubernetes\\.io/hostname}", "127.0.0.1"),
        ("{.items[0].status.*}", '{"cpu": "4"} 3 true'),
        ("{.users[1].user}", '{"username": "admin", "password": null}'),
        ("{.nothing.there}", ""),
        ('{range .items[*]}{.kind}{"\\t"}{.status.pods}{"\\n"}{end}', "None\t3\nNone\t12\n"),
        ("{range .items[*]}[{.kind}, {.status.pods}] {end}", "[None, 3] [None, 12] "),
        ("{range .users[*]}{range .user.*}x{end}{.name};{end}", "myself;xxe2e;"),
    ],
)
def test_templates_of_kubectls_page(template: str, text: str) -> None:
    assert Template(template).filled(DOCUMENT) == text


@pytest.mark.parametrize(
    "template",
    [
        *("", "name", "{.a", ".a}", "{.a[}", "{.a[?(@.b==c)]}", "{..name}"),
        *("{range .a}", "{.a b}", "{-}x}"),
    ],
)
def test_what_is_no_template_is_refused(template: str) -> None:
    with pytest.raises(PathError, match=r"expected|brace|end"):
        Template(template)


@examples(200)
@given(
    st.text("{}[]()?@.*:'\"\\ abn0-9=<>$", max_size=30) | st.text(max_size=30),
)
def test_any_text_is_a_template_or_a_path_or_refused(text: str) -> None:
    with suppress(PathError):
        assert isinstance(Template(text).filled(DOCUMENT), str)
    with suppress(PathError):
        json.dumps(Path(text).values(DOCUMENT))
