"""Makes untrusted text safe for a line of the log, a report or a terminal."""


def one_line(text: str, most: int = 200) -> str:
    """`text` as one printable line of at most `most` characters.

    What is not printable (control characters, line ends, lone surrogates) is escaped.
    """
    cut = text[: most + 1]
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in cut
    )
    return shown if len(shown) <= most else shown[: most - 1] + "…"
