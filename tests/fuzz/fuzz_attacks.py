"""What a hostile client does to an honest answer, each attack under its own name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from fuzz_drafts import HONEST, Draft, Rng, npy, numbers_of
from fuzz_headers import huge_shape, malformed, odd_shape, other_dtype

from fedridge_flwr.linalg import limbs

Attack = Callable[[Rng, Draft], None]
ODD_NUMBERS = (
    np.nan,
    np.inf,
    -np.inf,
    5e-324,
    -5e-324,
    1e-310,
    1e-160,
    1e308,
    -1e308,
    1.7e308,
    1e150,
    1e200,
    -0.0,
    0.0,
    -1.0,
)
ODD_FIELDS: tuple[Any, ...] = (
    True,
    False,
    -1,
    0,
    2**62,
    -(2**63),
    1.0,
    1.5,
    float("nan"),
    float("inf"),
    "1",
    "",
    "\x1b[31mred\x07\n",
    b"\x00\xff",
    [1],
    [1, 2, 3],
    ["a"],
    [True],
    [b"x"],
    [],
    "x" * 100_000,
)
SCHEMA_KEYS = (
    "fedridge-protocol",
    "kind",
    "n-features",
    "n-targets",
    "feature-hash",
    "feature-names",
    "feature-map",
    "n-features-in",
    "means-low",
    "error",
)
KINDS = (
    "centred",
    "centred-float32",
    "factor",
    "factor-float32",
    "columns",
    "opening",
    "product",
    "private",
    "Centred",
    "pickle",
)


# ---- bytes -----------------------------------------------------------------------


def _at_an_array(change: Callable[[Rng, bytes], bytes]) -> Attack:
    def attack(rng: Rng, draft: Draft) -> None:
        k = int(rng.integers(len(draft.arrays)))
        name, data = draft.arrays[k]
        draft.arrays[k] = (name, change(rng, data))

    return attack


def _flip_bits(rng: Rng, data: bytes) -> bytes:
    spoilt = bytearray(data)
    first = 0 if rng.random() < 0.3 else min(128, len(data) - 1)
    for _ in range(int(rng.choice([1, 1, 1, 2, 8, 64]))):
        spoilt[int(rng.integers(first, len(data)))] ^= 1 << int(rng.integers(8))
    return bytes(spoilt)


def _cut_or_extend(rng: Rng, data: bytes) -> bytes:
    if rng.random() < 0.5:
        return data[: int(rng.integers(len(data)))]
    return data + rng.bytes(int(rng.choice([1, 7, 8, 64, 4096])))


# ---- numbers ---------------------------------------------------------------------


def _number(rng: Rng, draft: Draft) -> tuple[int, np.ndarray]:
    k = int(rng.integers(len(draft.arrays)))
    return k, np.array(numbers_of(draft.arrays[k][1]))


def _replace(draft: Draft, k: int, array: np.ndarray) -> None:
    draft.arrays[k] = (draft.arrays[k][0], npy(array))


def _odd_numbers(rng: Rng, draft: Draft) -> None:
    k, array = _number(rng, draft)
    flat = array.reshape(-1)
    for _ in range(int(rng.choice([1, 1, 2, 5]))):
        if flat.size and array.dtype.kind == "f":
            with np.errstate(over="ignore"):
                flat[int(rng.integers(flat.size))] = rng.choice(ODD_NUMBERS)
        elif flat.size:
            info = np.iinfo(array.dtype)
            odd: Any = [info.min, info.max, -1]
            if array.dtype == np.uint64:
                odd = np.array([info.min, info.max, 1], np.uint64)
            flat[int(rng.integers(flat.size))] = rng.choice(odd)
    _replace(draft, k, array)


def _other_numbers(rng: Rng, draft: Draft) -> None:
    """Scale or shift some numbers, by a little or by a lot."""
    k, array = _number(rng, draft)
    flat = array.reshape(-1)
    if not flat.size:
        return
    size = 10.0 ** rng.integers(-9, 4)
    for _ in range(int(rng.choice([1, 1, 2, 6]))):
        j = int(rng.integers(flat.size))
        if array.dtype.kind == "f":
            flat[j] += size * rng.normal() * max(abs(float(flat[j])), 1e-3)
        else:
            flat[j] = rng.integers(-100, 100)
    _replace(draft, k, array)


def _not_a_square(rng: Rng, draft: Draft) -> None:
    """Push one number beyond what its neighbours allow, by little or by much."""
    k, array = _number(rng, draft)
    flat = array.reshape(-1)
    if not flat.size or array.dtype.kind != "f":
        return
    largest = float(np.abs(flat).max()) or 1.0
    j = int(rng.integers(flat.size))
    flat[j] = rng.choice([-1.0, 1.0]) * largest * (1 + 10.0 ** rng.integers(-12, 3))
    _replace(draft, k, array)


def _moved_words(rng: Rng, draft: Draft) -> None:
    """Add powers of two to whole numbers in words, or exchange or repeat some."""
    k, words = _number(rng, draft)
    if words.ndim != 2 or not words.size or words.dtype != np.uint64:
        return
    for _ in range(int(rng.choice([1, 1, 2, 5]))):
        i, j = rng.integers(len(words), size=2)
        if rng.random() < 0.25:
            words[i] = words[j]
            continue
        size = int(rng.choice([-1, 1])) << int(rng.integers(64 * words.shape[1]))
        words[i] = (limbs.add(words[i], limbs.from_ints([size], words.shape[1])))[0]
    _replace(draft, k, words)


def _other_weighting(rng: Rng, draft: Draft) -> None:
    """Call rows with weights rows without, or the other way round."""
    weighted = draft.fields.get("kind") == "fixed-weighted"
    draft.fields["kind"] = "fixed" if weighted else "fixed-weighted"
    if rng.random() < 0.5:
        _moved_words(rng, draft)


def _too_many_ranks(rng: Rng, draft: Draft) -> None:
    """Say that there were fewer rows than the numbers need."""
    if isinstance(draft.count, int):
        draft.count = int(rng.choice([0, 1, 2, 3, max(draft.count // 2, 1)]))


def _other_weight(rng: Rng, draft: Draft) -> None:
    array = np.array(numbers_of(draft.arrays[0][1]))
    if array.dtype.kind == "f" and array.size:
        odd = (0.0, -1.0, 1e-300, 1e149, 1e151, 0.5, 1e17, -0.0, 5e-324)
        array.reshape(-1)[0] = rng.choice(odd)
        _replace(draft, 0, array)


def _all_at_once(rng: Rng, draft: Draft) -> None:
    """Random numbers of the right form."""
    k, array = _number(rng, draft)
    if array.dtype.kind == "f":
        scale = 10.0 ** rng.integers(-3, 4)
        array = (scale * rng.normal(size=array.shape)).astype(array.dtype)
        if rng.random() < 0.5:
            array = np.abs(array)
    _replace(draft, k, array)


# ---- arrays ----------------------------------------------------------------------


def _other_arrays(rng: Rng, draft: Draft) -> None:
    """Missing, doubled, swapped, renamed, transposed, reshaped, of another answer."""
    which = int(rng.integers(7))
    k = int(rng.integers(len(draft.arrays)))
    name, data = draft.arrays[k]
    array = numbers_of(data)
    if which == 0:
        del draft.arrays[k]
    elif which == 1:
        draft.arrays.append((f"{name} again", data))
    elif which == 2:
        draft.arrays.reverse()
    elif which == 3:
        draft.arrays[k] = ("renamed\x1b[31m", data)
    elif which == 4:
        draft.arrays[k] = (name, npy(array.T if array.ndim > 1 else array[:, None]))
    elif which == 5:
        kinds = ("f2", "f4", ">f8", "c16", "i8", "u1", "?", "g")
        with np.errstate(over="ignore", invalid="ignore"):
            changed = array.astype(str(rng.choice(kinds)))
        draft.arrays[k] = (name, npy(changed))
    else:
        other = HONEST[str(rng.choice(list(HONEST)[:10]))](rng)
        draft.arrays = other.arrays


def _larger_sizes(rng: Rng, draft: Draft) -> None:
    """Few columns that say they are many."""
    size = int(rng.choice([2, 100, 5000, 16_384, 99_999, 999_999]))
    key = str(rng.choice(["n-features", "n-targets", "n-features-in"]))
    draft.fields[key] = size


# ---- what travels beside ---------------------------------------------------------


def _other_count(rng: Rng, draft: Draft) -> None:
    odd = (-1, 0, 1, 2, 2**53, 2**62, -(2**63), 1.0, 2.5, float("nan"))
    more: tuple[Any, ...] = (True, "7", None, b"7", [3], [3.0, 4.0], ["3"])
    both = odd + more
    draft.count = both[rng.integers(len(both))]


def _other_fields(rng: Rng, draft: Draft) -> None:
    keys = list(draft.fields) if draft.evaluates else [*draft.fields, *SCHEMA_KEYS]
    key = keys[rng.integers(len(keys))]
    if key in draft.fields and rng.random() < 0.25:
        del draft.fields[key]
    else:
        draft.fields[key] = ODD_FIELDS[rng.integers(len(ODD_FIELDS))]


def _other_kind(rng: Rng, draft: Draft) -> None:
    draft.fields["kind"] = str(rng.choice(KINDS))
    if rng.random() < 0.3:
        draft.fields["fedridge-protocol"] = int(rng.choice([0, 1, 2, 3, 4]))


def _other_question(rng: Rng, draft: Draft) -> None:
    """Answer a question that somebody else was asked."""
    other = HONEST[str(rng.choice(list(HONEST)[:10]))](rng)
    draft.question = other.question
    if rng.random() < 0.5:
        draft.feature_map = other.feature_map


def _other_hash(rng: Rng, draft: Draft) -> None:
    odd = ("0" * 32, "f" * 31, "F" * 32, "0" * 33, "é" * 32, "0" * 31 + "\n", " " * 32)
    key = str(rng.choice(["feature-hash", "feature-map"]))
    draft.fields[key] = str(rng.choice(odd))


def _names_bomb(rng: Rng, draft: Draft) -> None:
    d = draft.fields.get("n-features", 1)
    d = d if isinstance(d, int) and 0 < d < 50 else 1
    deep = int(rng.choice([10, 1000, 100_000]))
    texts: tuple[Callable[[], Any], ...] = (
        lambda: "[" * deep,
        lambda: "[" * deep + "]" * deep,
        lambda: '{"a":' * deep + "1" + "}" * deep,
        lambda: json.dumps(["x" * deep] * d),
        lambda: json.dumps([f"x{j}" for j in range(d + 1)]),
        lambda: json.dumps(["same"] * d),
        lambda: json.dumps(["\x1b[31m\n"] * d),
        lambda: '["\\ud800"]',
        lambda: json.dumps([1.5] * d),
        lambda: "9" * deep,
        lambda: "[1e999999]",
        lambda: "NaN",
        lambda: b'["a"]',
        lambda: "\x00",
        lambda: json.dumps([f"x{j}" for j in range(d)]),
    )
    draft.fields["feature-names"] = texts[rng.integers(len(texts))]()
    if rng.random() < 0.5:
        draft.fields.pop("feature-hash", None)


def _error_text(rng: Rng, draft: Draft) -> None:
    long = int(rng.choice([10, 1000, 100_000]))
    texts = (
        "\x1b[31m" * long,
        "line\n" * long,
        "<class ''>:<'" * long,
        "Message contains an Error (reason: " * long,
        "Error." * long,
        "\x07\x00\u202e\ufeff",
        "",
    )
    reason = texts[rng.integers(len(texts))]
    if draft.legacy:
        code = ODD_FIELDS[rng.integers(len(ODD_FIELDS))]
        draft.status = {"code": code, "message": reason}
        if rng.random() < 0.2:
            draft.status = {"code": code}
    else:
        which = ODD_FIELDS[rng.integers(len(ODD_FIELDS))]
        swap = {"error": reason if rng.random() < 0.7 else which}
        draft.swap["config"] = ConfigRecord({**draft.fields, **swap})


def _wrong_records(rng: Rng, draft: Draft) -> None:
    """A record of another type under the right key, none, or both forms at once."""
    keys = list(draft.records())
    key = keys[rng.integers(len(keys))]
    records = (
        ArrayRecord(),
        ConfigRecord({"a": [1, 2]}),
        MetricRecord({"num-examples": [1, 2]}),
        MetricRecord({}),
        None,
    )
    draft.swap[key] = records[rng.integers(len(records))]
    if rng.random() < 0.2:
        draft.swap["config"] = ConfigRecord({"fedridge-protocol": 1})


def _numbers_told(rng: Rng, draft: Draft) -> None:
    """Errors, R² and losses that are no errors."""
    odd: tuple[Any, ...] = (*ODD_FIELDS, *map(float, ODD_NUMBERS), 7.0, -1e300)
    key = list(draft.fields)[rng.integers(len(draft.fields))]
    if key == "losses":
        losses = list(draft.fields[key])
        losses[rng.integers(len(losses))] = float(rng.choice(ODD_NUMBERS))
        many = losses * int(rng.choice([1, 1, 2, 1000]))
        wrong: tuple[Any, ...] = (many, losses[1:] or 1.0, b"\x00" * 7, "x", 3)
        draft.fields[key] = wrong[rng.integers(len(wrong))]
    else:
        draft.fields[key] = odd[rng.integers(len(odd))]


def _several(rng: Rng, draft: Draft) -> None:
    """Two or three of all that, at once."""
    table = TOLD if draft.evaluates else SENT
    names = [name for name in table if name not in ("several at once", "nothing")]
    for _ in range(int(rng.integers(2, 4))):
        if draft.evaluates or draft.arrays:
            try:
                table[str(rng.choice(names))](rng, draft)
            except (ValueError, TypeError, IndexError, MemoryError):
                continue  # one attack left nothing that the next could spoil


BESIDE: dict[str, Attack] = {
    "a count that cannot be": _other_count,
    "fields missing or of another type": _other_fields,
    "error texts: escapes, megabytes": _error_text,
    "records of another type": _wrong_records,
}
SENT: dict[str, Attack] = {
    "nothing": lambda rng, draft: None,
    "bits flipped": _at_an_array(_flip_bits),
    "bytes cut off or added": _at_an_array(_cut_or_extend),
    "header: dtype": _at_an_array(other_dtype),
    "header: huge shape": _at_an_array(huge_shape),
    "header: odd shape": _at_an_array(odd_shape),
    "header: no header, deep nesting": _at_an_array(malformed),
    "NaN, inf, denormal, 1e308": _odd_numbers,
    "some other numbers": _other_numbers,
    "no sum of squares": _not_a_square,
    "random numbers": _all_at_once,
    "more rank than rows": _too_many_ranks,
    "an impossible weight": _other_weight,
    "arrays missing, doubled, swapped, retyped": _other_arrays,
    "few columns that claim to be many": _larger_sizes,
    **BESIDE,
    "kind and version of another answer": _other_kind,
    "an answer to another question": _other_question,
    "hashes of the wrong form": _other_hash,
    "names: deep JSON, megabytes": _names_bomb,
    "several at once": _several,
}
TOLD: dict[str, Attack] = {
    "nothing": SENT["nothing"],
    **BESIDE,
    "errors that are none": _numbers_told,
    "several at once": _several,
}


def attacks_on(kind: str) -> dict[str, Attack]:
    if kind == "fixed-point statistics":
        moved = "whole numbers moved by powers of two"
        return {**SENT, moved: _moved_words, "weighted or not": _other_weighting}
    return TOLD if kind in ("evaluation", "held-out losses") else SENT
