"""The ACL that the role `broker` installs, for a mosquitto in a test."""

import re
from collections.abc import Sequence
from pathlib import Path

TEMPLATE = Path(__file__).parents[2] / "ansible/roles/broker/templates/acl.j2"
_LOOP = re.compile(r"{% for name in broker_locked_out %}\n(.*?){% endfor %}\n", re.DOTALL)


def acl(folder: Path, cluster: str = "default", locked_out: Sequence[str] = ()) -> Path:
    """Write the role's ACL below `folder` and return the file.

    The template is one variable and one loop, so the tests need no Jinja.
    """
    text = _LOOP.sub(
        lambda block: "".join(block[1].replace("{{ name }}", name) for name in locked_out),
        TEMPLATE.read_text(),
    )
    text = text.replace("{{ broker_cluster }}", cluster)
    assert "{" not in text, "the template has grown: render it here"
    path = folder / "acl"
    path.write_text(text)
    path.chmod(0o600)
    return path
