"""Headers of NumPy's format as no honest client writes them."""

from __future__ import annotations

from fuzz_drafts import Rng

MAGIC = b"\x93NUMPY"
DTYPES = (
    "|O",
    "<c16",
    ">f8",
    "<f2",
    "<f4",
    "<f16",
    "<i8",
    "|i1",
    "<u8",
    "|b1",
    "<M8[s]",
    "<m8[ns]",
    "|S8",
    "<U2",
    "|V8",
    "V99999999999999999999",
    "f8,f8",
    "(2,)<f8",
    "float64",
    "<f8\\x00",
    "",
    "<f99999999999999999",
)
STRUCTURED = (
    "[('a', '<f8'), ('b', '<i4')]",
    "[('a', '|O')]",
    "[('a', '<f8', (99999999, 99999999))]",
    "('<f8', -1)",
    "None",
    "{'names': ['a'], 'formats': ['<f8']}",
)


def header(descr: str, shape: str, order: str = "False", version: int = 1) -> bytes:
    """Return a header with these texts in place of its values."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    return packed(text.encode("latin1", "replace"), version)


def packed(text: bytes, version: int = 1) -> bytes:
    size = 2 if version == 1 else 4
    text += b" " * (-(len(MAGIC) + 2 + size + len(text) + 1) % 64) + b"\n"
    length = min(len(text), 256**size - 1).to_bytes(size, "little")
    return MAGIC + bytes([version % 256, 0]) + length + text


def other_dtype(rng: Rng, data: bytes) -> bytes:
    """Another type of numbers, or something that is none; as long as before."""
    body = data[_end(data) :]
    if rng.random() < 0.3:
        descr = str(rng.choice(STRUCTURED))
    else:
        descr = f"'{rng.choice(DTYPES)}'"
    return header(descr, _shape(rng, len(body) // 8)) + body


def huge_shape(rng: Rng, data: bytes) -> bytes:
    """A shape of up to 1e18 numbers, and few bytes behind it."""
    body = data[_end(data) :]
    shapes = (
        f"({10 ** int(rng.integers(3, 19))},)",
        f"({10 ** int(rng.integers(3, 10))}, {10 ** int(rng.integers(3, 10))})",
        f"({2**63}, 0)",
        "(" + "9" * int(rng.integers(20, 900)) + ", 0)",
        "(0x" + "f" * int(rng.integers(10, 6000)) + ",)",
        f"({2**61},)",
        "(65536, 65536, 65536, 65536)",
    )
    return header("'<f8'", str(rng.choice(shapes))) + body


def odd_shape(rng: Rng, data: bytes) -> bytes:
    """No dimension, very many, negative ones, and things that are no shape."""
    body = data[_end(data) :]
    n = len(body) // 8
    shapes = (
        "()",
        f"({n}, {'1, ' * int(rng.integers(10, 90))})",
        f"(-{n},)",
        f"(-1, -{n})",
        f"(1, {n})",
        f"({n}, 1)",
        f"{n}",
        f"[{n}]",
        f"({n}.0,)",
        f"(True, {n})",
        "(None,)",
        "'abc'",
        f"({n}L,)",
        "(0,)",
        f"(0, {n})",
    )
    order = str(rng.choice(["True", "False", "1", "None", "'yes'", "[]"]))
    return header("'<f8'", str(rng.choice(shapes)), order) + body


def malformed(rng: Rng, data: bytes) -> bytes:
    """Text that is no header: deep nesting, code, other versions, wrong lengths."""
    body = data[_end(data) :]
    deep = int(rng.integers(50, 9000))
    texts = (
        "(" * deep,
        "[" * deep + "]" * deep,
        "-" * deep + "1",
        "1+" * deep + "1j",
        "not " * deep + "1",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "-" * deep + "1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1+" * deep + "1j,)}",
        "{'descr': '<f8', 'fortran_order': False}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), 'extra': 1}",
        "{'descr': '<f8', 'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "__import__('os').system('true')",
        "{'descr': '<f8'",
        "\x00" * deep,
        "lambda: 1",
        "'''",
        "{1: 2}",
        "\\",
        " \t\n" * (deep // 3),
        "",
    )
    text = texts[rng.integers(len(texts))].encode("latin1")
    version = int(rng.choice([0, 1, 2, 3, 255]))
    made = packed(text, version) + body
    return made if rng.random() < 0.8 else made[: int(rng.integers(len(made) + 1))]


def _end(data: bytes) -> int:
    return 10 + int.from_bytes(data[8:10], "little")


def _shape(rng: Rng, n: int) -> str:
    return f"({n},)" if rng.random() < 0.8 else f"({n // 2}, 2)"
