"""Rewrites of repositories in k3s' registries.yaml, with the meaning that Go gives them.

k3s' containerd calls regexp.ReplaceAllString. RE2 matches as Go's regexp does, but its Python
wrapper replaces as Python's re does: it replaces the empty match behind a match as well, and has
another syntax for groups. So matches are walked, and templates expanded, here.
"""

import re
from dataclasses import dataclass
from typing import Any

import re2

# Of a pattern and of what replaces it, so that one rewrite can't make megabytes of a repository.
MAX_CHARS = 1024
# $1, ${1}, $name, ${name} or $$; any other $ is only a character (Go's regexp.Expand).
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")
_NUMBER = re.compile(r"0|[1-9][0-9]*", re.ASCII)


class RewriteError(ValueError):
    """A pattern that Go refuses as well; str() is what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replaces each match of a pattern by a template."""

    pattern: Any
    template: str

    def replace(self, text: str) -> str:
        """What Go's ReplaceAllString makes of the text."""
        parts, end = [], 0
        for match in self.pattern.finditer(text):
            parts.append(text[end : match.start()])
            # An empty match is not replaced where it touches the match before it.
            if match.end() > end or match.start() == 0:
                parts.append(_expanded(self.template, match))
            end = match.end()
        return "".join((*parts, text[end:]))


def read_rewrite(pattern: str, template: str) -> Rewrite:
    """Raises RewriteError."""
    if max(len(pattern), len(template)) > MAX_CHARS:
        raise RewriteError(f"expected at most {MAX_CHARS} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        return Rewrite(re2.compile(pattern, options), template)
    except re2.error as error:
        reason = error.args[0]
        raise RewriteError(reason.decode() if isinstance(reason, bytes) else reason) from None


def _expanded(template: str, match: Any) -> str:
    """The template with the match's groups in it; a group that there is not is empty."""

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return "$"
        name = found[2] or found[3]
        # All that begins with a digit but is no number, such as 1x, is the name of a group.
        group = int(name) if _NUMBER.fullmatch(name) else match.re.groupindex.get(name, -1)
        return (match[group] or "") if 0 <= group <= match.re.groups else ""

    return _REFERENCE.sub(value, template)
