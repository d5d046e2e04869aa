"""`TableOptions`: how the text of a table file is to be read."""

from __future__ import annotations

import codecs
import json
import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .._checks import check_choice, check_flag
from .._files import read_file
from ..errors import DataError

MISSING = (
    *("", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan"),
    *("NULL", "null", "None", "NaT", ".", "?"),
)
"""Entries that always mean a missing value: those of pandas, a point (SAS, Stata) and a
question mark (UCI). Codes such as -9 or 999, and words that may be a category, such as
"none" or "-", do so only where `TableOptions.missing` names them."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class TableOptions:
    """How a table file is read. What is not given is detected from the file's start.

    Parquet files contain names and types, so only `columns`, `missing` and `missing_in`
    apply to them.

    Parameters
    ----------
    columns : sequence of str, optional
        Names of all columns, in the order of the file. Needed where the file has no
        header row; with ``header=True`` they replace the names in the header.
    delimiter : str, optional
        One character. Detected: comma, semicolon, tab, and vertical bar.
    decimal : {".", ","}, optional
        The decimal mark of numbers.
    encoding : str, optional
        Detected: UTF-8, UTF-16, and otherwise Windows-1252, of which Latin-1 is a part.
    header : bool, optional
        Whether the first row has the names of the columns.
    missing : sequence of str, optional
        Entries that mean a missing value, in addition to an empty one, NA, N/A, NaN,
        NULL, None, NaT, a point, and a question mark. A number is meant in any
        spelling: -9 is also -9.0.
    missing_in : mapping of str to sequence of str, optional
        The same for single columns, as in ``{"chol": ["0"]}``. A file must have these
        columns.

    Examples
    --------
    >>> from fedridge_flwr import TableOptions
    >>> TableOptions(columns=["age", "sex"], missing=[-9])
    TableOptions(columns=('age', 'sex'), delimiter=None, decimal=None, encoding=None, \
header=None, missing=('-9',), missing_in=())
    >>> TableOptions.from_mapping({"separator": ";"})
    Traceback (most recent call last):
    fedridge_flwr.errors.DataError: 'separator' is not an option of a table. Options \
are: columns, delimiter, decimal, encoding, header, missing, \
missing_in.
    """

    columns: tuple[str, ...] = ()
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: bool | None = None
    missing: tuple[str, ...] = ()
    missing_in: Mapping[str, Sequence[str]] | tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        """Check every option, and bring lists to tuples."""
        object.__setattr__(self, "columns", _names(self.columns))
        object.__setattr__(self, "missing", _markers(self.missing))
        object.__setattr__(self, "missing_in", _markers_in(self.missing_in))
        if self.delimiter is not None:
            _check_delimiter(self.delimiter)
        if self.decimal is not None:
            check_choice("decimal", self.decimal, [".", ","], DataError)
        if self.encoding is not None:
            _check_encoding(self.encoding)
        if self.header is not None:
            check_flag("header", self.header, DataError)
        if self.header is False and not self.columns:
            raise DataError(
                "header is false, so columns must name all columns of the file, as in "
                'columns = ["age", "sex"].'
            )
        if self.decimal is not None and self.decimal == self.delimiter:
            raise DataError("decimal and delimiter must not be the same character.")

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> TableOptions:
        """Return the options in a mapping.

        Raises
        ------
        DataError
            If one has another name or type.
        """
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise DataError(
                    f"{name!r} is not an option of a table. Options are: "
                    f"{', '.join(known)}."
                )
        return cls(**options)

    @classmethod
    def from_toml(cls, path: str | Path) -> TableOptions:
        """Return the options in a TOML file, which may contain nothing else."""
        path = Path(path)
        try:
            options = tomllib.loads(read_file(path))
        except (OSError, ValueError) as error:
            # What is wrong with a file is said without its folder.
            reason = getattr(error, "strerror", None) or str(error)
            raise DataError(f"{path.name} cannot be read as TOML: {reason}.") from None
        try:
            return cls.from_mapping(options)
        except DataError as error:
            raise DataError(f"{path.name}: {error}") from None

    @property
    def text(self) -> str:
        """What was given, as a table of TOML in one line; empty if all is detected.

        Examples
        --------
        >>> from fedridge_flwr import TableOptions
        >>> options = TableOptions(decimal=",", missing=[-9], missing_in={"chol": [0]})
        >>> options.text
        '{ decimal = ",", missing = ["-9"], missing_in = { chol = ["0"] } }'
        >>> TableOptions.from_text(options.text) == options
        True
        """
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given["missing_in"] = dict(self.missing_in)
        told = {k: v for k, v in given.items() if v not in (None, (), {})}
        return _toml(told) if told else ""

    @classmethod
    def from_text(cls, text: str) -> TableOptions:
        """Return the options in what `text` returned."""
        if not text:
            return cls()
        try:
            return cls.from_mapping(tomllib.loads(f"table = {text}")["table"])
        except (ValueError, TypeError) as error:
            raise DataError(f"these are no options of a table: {error}.") from None


def _toml(value: Any) -> str:
    """Return a value of an option as TOML: its texts are written as in JSON."""
    match value:
        case Mapping():
            pairs = (
                (k if _BARE.fullmatch(k) else _toml(k), v) for k, v in value.items()
            )
            return f"{{ {', '.join(f'{k} = {_toml(v)}' for k, v in pairs)} }}"
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _name(name: str) -> str:
    return unicodedata.normalize("NFC", name.strip())


def _names(columns: Any) -> tuple[str, ...]:
    if columns is None:
        return ()
    names = tuple(columns) if isinstance(columns, list | tuple) else ()
    if not all(isinstance(name, str) for name in names) or names != tuple(columns):
        raise DataError(
            'columns must be a list of names, as in ["age", "sex"], got '
            f"{type(columns).__name__}."
        )
    names = tuple(map(_name, names))
    if "" in names or len(set(names)) < len(names):
        raise DataError("columns must be names that are all different, and none empty.")
    return names


def _markers(missing: Any) -> tuple[str, ...]:
    if missing is None:
        return ()
    if isinstance(missing, Mapping):
        raise DataError(
            "missing must be a list, which is for all columns; markers of single "
            'columns are missing_in, as in missing_in = { chol = ["0"] }.'
        )
    if not isinstance(missing, list | tuple) or not all(
        isinstance(marker, str | int | float) for marker in missing
    ):
        raise DataError(
            f'missing must be a list, as in ["-9", "x"], got {type(missing).__name__}.'
        )
    return tuple(str(marker).strip() for marker in missing)


def _markers_in(missing_in: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return markers by column as pairs, which can be hashed."""
    pairs = missing_in.items() if isinstance(missing_in, Mapping) else missing_in
    if pairs is None or not isinstance(missing_in, Mapping | tuple):
        raise DataError(
            'missing_in must be markers by column, as in {chol = ["0"]}, got '
            f"{type(missing_in).__name__}."
        )
    found = tuple((_name(str(column)), _markers(told)) for column, told in pairs)
    if len(dict(found)) < len(found):
        raise DataError("missing_in has two entries for one column.")
    return found


def _check_delimiter(delimiter: Any) -> None:
    if (
        not isinstance(delimiter, str)
        or len(delimiter) != 1
        or not delimiter.isascii()
        or delimiter.isalnum()
        or delimiter in '"\r\n.+-\0'
    ):
        raise DataError(
            "delimiter must be one character such as ',', ';', '|' or a tab ('\\t'), "
            f"got {delimiter!r}."
        )


def _check_encoding(encoding: Any) -> None:
    try:
        codecs.lookup(encoding)
        "".encode(encoding)
    except (LookupError, TypeError):
        raise DataError(
            "encoding must be one that Python knows, such as 'utf-8', 'utf-16' or "
            f"'cp1252', got {encoding!r}."
        ) from None
