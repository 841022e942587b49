"""Header fields of HTTP/2 requests and answers (HPACK, RFC 7541), as far as http2.py needs them.

Fields are sent as literals. Of an answer only the status and Retry-After are read; the server is
asked for fields without a dynamic table, so each block stands for itself.
"""

from collections.abc import Mapping

# The static table's indexes of the header fields that are sent or read.
_STATUS_INDEXES = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}
_RETRY_AFTER_INDEX = 53
# The Huffman codes of the digits: their length in bits, and their bits.
_DIGITS = {
    **{(5, digit): str(digit) for digit in range(3)},
    **{(6, 0x16 + digit): str(digit) for digit in range(3, 10)},
}


def field_block(fields: Mapping[str, str]) -> bytes:
    """Header fields as literals that are not to be indexed; pseudo-headers come first."""
    return b"".join(
        b"\x00" + _text(name.lower().encode()) + _text(value.encode())
        for name, value in fields.items()
    )


def request_head(path: str, block: bytes, body_bytes: int | None = None) -> bytes:
    """The header block of a request. block: `field_block` of all but its path and length.
    body_bytes: its length; None without a body."""
    length = b"" if body_bytes is None else b"\x0f\x0d" + _text(b"%d" % body_bytes)
    return b"\x04" + _text(path.encode()) + block + length


def read_response_head(block: bytes) -> tuple[int, str]:
    """The status, and Retry-After if it is a number. Raises ValueError or IndexError."""
    status, retry_after, at = 0, "", 0
    while at < len(block):
        first = block[at]
        if first & 0x80:
            index, at = _integer(block, at, 7)
            status = _STATUS_INDEXES.get(index, status)
            continue
        if first & 0xE0 == 0x20:  # a new size of the dynamic table, which is not used
            _, at = _integer(block, at, 5)
            continue
        index, at = _integer(block, at, 6 if first & 0x40 else 4)
        if not index:
            _, at = _skipped_text(block, at)
        begins, at = _skipped_text(block, at)
        if index in _STATUS_INDEXES:
            status = int(_number(block[begins:at]))
        elif index == _RETRY_AFTER_INDEX:
            retry_after = _number(block[begins:at])
        if 200 <= status < 400:
            break  # the rest is of no use
    if not status:
        raise ValueError("no status")
    return status, retry_after


def _text(text: bytes) -> bytes:
    size = len(text)
    if size < 0x7F:
        return bytes((size,)) + text
    size, length = size - 0x7F, bytearray((0x7F,))
    while size >= 0x80:
        length.append(0x80 | size & 0x7F)
        size >>= 7
    return bytes((*length, size)) + text


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """The integer here, whose first byte has so many bits of it, and where it ends."""
    most = (1 << bits) - 1
    value, at = block[at] & most, at + 1
    if value == most:
        shift = 0
        while True:
            byte, at = block[at], at + 1
            value += (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 28:
                raise ValueError("a number is too long")
    return value, at


def _skipped_text(block: bytes, at: int) -> tuple[int, int]:
    """Where the text here begins, with its length, and where it ends."""
    size, begins = _integer(block, at, 7)
    if begins + size > len(block):
        raise ValueError("a text is too long")
    return at, begins + size


def _number(text: bytes) -> str:
    """The digits of a text, also of one in Huffman codes; "" if it is anything else."""
    size, begins = _integer(text, 0, 7)
    raw = text[begins:]
    if not text[0] & 0x80:
        return raw.decode("ascii", "replace") if raw.isdigit() else ""
    bits, left, digits = int.from_bytes(raw, "big"), 8 * size, ""
    while left >= 5:
        for length in (5, 6):
            digit = _DIGITS.get((length, bits >> (left - length))) if left >= length else None
            if digit is not None:
                digits, left = digits + digit, left - length
                bits &= (1 << left) - 1
                break
        else:
            break
    # What is left is padding: ones, fewer than eight.
    return digits if left < 8 and bits == (1 << left) - 1 else ""
