"""Tables as they come: what a file has, and the numbers or the error that it gives.

One list for `test_spoiled.py` and for docs/reference/spoiled-tables.md.
"""

from __future__ import annotations

import bz2
import datetime
import gzip
import lzma
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedridge_flwr import DataError
from fedridge_flwr.data.sources import TableFile, TableOptions

NAN = None  # of a number that is missing
PLAIN = "age,sex,bmi\n41,1,23.5\n36,0,\n58,1,31\n"
AGE = [41.0, 36.0, 58.0]
BMI = [23.5, NAN, 31.0]


@dataclass(frozen=True)
class Spoiled:
    """A file, and what it gives: numbers, levels, or an error.

    `error` has words that the message has; the page shows all of it.
    """

    what: str
    content: bytes | pa.Table | None
    numbers: dict[str, list[float | None]] = field(default_factory=dict)
    levels: dict[str, list[str | None]] = field(default_factory=dict)
    error: str = ""
    ask: str = ""
    """The column that is asked for as numbers, where there is an error."""
    options: dict[str, Any] = field(default_factory=dict)
    file: str = "site.csv"
    value: str = ""
    """A value in the file that no message may have."""

    def write(self, folder: Path) -> Path:
        path = folder / self.file
        if self.content is None:
            path.mkdir()
        elif isinstance(self.content, bytes):
            path.write_bytes(self.content)
        else:
            pq.write_table(self.content, path)
        return path

    def open(self, folder: Path) -> TableFile:
        return TableFile(self.write(folder), TableOptions.from_mapping(self.options))

    def read(self, folder: Path) -> dict[str, list[Any]]:
        """Return what is found in the columns that are named here."""
        names = [*self.numbers, *self.levels] or ([self.ask] if self.ask else None)
        found: dict[str, list[Any]] = {}
        for batch in self.open(folder).batches(names):
            for name in batch:
                if name in self.levels:
                    values = batch.levels(name).to_pylist()
                else:
                    values = [
                        v if v == v else None for v in batch.numbers(name).tolist()
                    ]
                found.setdefault(name, []).extend(values)
        return found


def text(lines: str, encoding: str = "utf-8") -> bytes:
    return lines.encode(encoding)


def zstandard(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


def frame(**columns: Any) -> pa.Table:
    return pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)


ALL = {"age": AGE, "bmi": BMI}
CASES = [
    # ---- columns and names ----
    Spoiled("columns in another order", text("bmi,age\n23.5,41\n,36\n31,58\n"), ALL),
    Spoiled(
        "a column is missing",
        text("age,sex\n41,1\n"),
        ask="bmi",
        error="no column 'bmi'",
    ),
    Spoiled(
        "a name in another case",
        text("Age,BMI\n41,23.5\n"),
        ask="age",
        error="Is 'Age' meant?",
    ),
    Spoiled("names with white space", text(" age , bmi\n41,23.5\n36,\n58,31\n"), ALL),
    Spoiled("names in quotes", text('"age","bmi"\n41,23.5\n36,\n58,31\n'), ALL),
    Spoiled(
        "one name twice",
        text("age,bmi,age\n41,23.5,41\n"),
        error="column 2 ('age') is already used",
    ),
    Spoiled(
        "a column of row names without a name",
        text('"","age","bmi"\n"1",41,23.5\n"2",36,NA\n"3",58,31\n'),
        ALL,
    ),
    Spoiled(
        "no header",
        text("41,1,23.5\n36,0,\n"),
        error='columns = ["age", "sex"]',
        value="23.5",
    ),
    Spoiled(
        "no header, but the option columns",
        text("41,1,23.5\n36,0,?\n58,1,31\n"),
        ALL,
        options={"columns": ["age", "sex", "bmi"]},
    ),
    Spoiled(
        "a header and the option columns, which differ",
        text("Alter,BMI\n41,23.5\n"),
        options={"columns": ["age", "bmi"]},
        error="header = true",
    ),
    Spoiled(
        "years as names",
        text("age,2020\n41,1.5\n"),
        {"age": [41.0], "2020": [1.5]},
        options={"header": True},
    ),
    Spoiled(
        "a title above the header",
        text(f"Export of 2024-01-31\n{PLAIN}"),
        error="Remove a title above the header",
        value="2024",
    ),
    Spoiled(
        "an option with another name",
        text(PLAIN),
        options={"seperator": ";"},
        error="Options are: columns, delimiter",
    ),
    # ---- rows ----
    Spoiled("an empty file", b"", error="the file is empty"),
    Spoiled("a header and no rows", text("age,bmi\n"), error="no rows"),
    Spoiled("blank lines above the header", text(f"\n  \n{PLAIN}"), ALL),
    Spoiled(
        "a blank line above names that are years",
        text("\nage,2020\n41,1.5\n36,\n"),
        {"age": [41.0, 36.0], "2020": [1.5, NAN]},
        options={"header": True},
    ),
    Spoiled("blank lines at the end", text(f"{PLAIN}\n  \n\n"), ALL),
    Spoiled(
        "line ends of several systems", text("age,bmi\r\n41,23.5\n36,\r58,31"), ALL
    ),
    Spoiled(
        "a delimiter at the end of every line",
        text("age,bmi,\n41,23.5,\n36,,\n58,31,\n"),
        ALL,
    ),
    Spoiled(
        "the same, but not in the header",
        text("age,bmi\n41,23.5,\n36,,\n58,31,\n"),
        error="the first line has 2 columns, all others have 3",
        value="23.5",
    ),
    Spoiled(
        "a row with too few entries",
        text("age,sex,bmi\n41,1,23.5\n36,0\n58,1,31\n"),
        error="line 3 has 2 columns, but the file has 3",
        value="36",
    ),
    Spoiled(
        "a delimiter and a line end within quotes",
        text('age,note,bmi\n41,"a, b",23.5\n36,"two\nlines",\n58,"say ""x""",31\n'),
        ALL,
        {"note": ["a, b", "two\nlines", 'say "x"']},
    ),
    Spoiled(
        "a quote that is never closed",
        text('age,note\n41,"fine"\n36,"open\n58,ok\n40,"more"\n'),
        ask="age",
        error="a quote in line 3 is not closed",
        value="fine",
    ),
    # ---- how the text is written ----
    Spoiled("semicolons", text(PLAIN.replace(",", ";")), ALL),
    Spoiled("tabs", text(PLAIN.replace(",", "\t")), ALL, file="site.tsv"),
    Spoiled(
        "semicolons and decimal commas",
        text(PLAIN.replace(",", ";").replace(".", ",")),
        ALL,
    ),
    Spoiled(
        "decimal commas in quotes, between commas",
        text('age,bmi\n41,"23,5"\n36,\n58,"31,0"\n'),
        ALL,
    ),
    Spoiled(
        "decimal commas without quotes, between commas",
        text("age,bmi\n41,23,5\n58,31,0\n"),
        error="the first line has 2 columns, all others have 3",
        value="23",
    ),
    Spoiled(
        "decimal commas here, decimal points there",
        text("age;bmi\n41;23,5\n36;23.5\n"),
        ask="bmi",
        error='Set decimal = ","',
        value="23,5",
    ),
    Spoiled(
        "1,234: thousands or a decimal comma?",
        text("age;cost\n41;1,234\n36;2,500\n"),
        ask="cost",
        error='Set decimal = ","',
        value="1,234",
    ),
    Spoiled(
        "the same with the option decimal",
        text("age;cost\n41;1,234\n36;2,500\n"),
        {"cost": [1.234, 2.5]},
        options={"decimal": ","},
    ),
    Spoiled(
        "1.234: thousands or a decimal point?",
        text("age;cost\n41;1.234\n36;950\n"),
        ask="cost",
        error='Set decimal = "."',
        value="1.234",
    ),
    Spoiled(
        "thousands or a decimal point, with the option decimal",
        text("age;cost\n41;1.234\n36;950\n"),
        {"cost": [1.234, 950.0]},
        options={"decimal": "."},
    ),
    Spoiled(
        "1.234, and other decimal points",
        text("age;cost;bmi\n41;1.234;23.5\n36;2.500;\n58;950;31\n"),
        {**ALL, "cost": [1.234, 2.5, 950.0]},
    ),
    Spoiled(
        "1.234, and numbers without separators of thousands",
        text("age;cost\n41;1.234\n36;1850\n"),
        {"cost": [1.234, 1850.0]},
    ),
    Spoiled(
        "1.234, and decimal commas",
        text("age;cost;bmi\n41;1.234;23,5\n36;2.500;\n58;950;31\n"),
        ask="cost",
        error="the file has decimal commas",
        value="1.234",
    ),
    Spoiled(
        "separators of thousands",
        text("age;cost\n41;1'234'567\n36;2\n"),
        ask="cost",
        error="separators of thousands",
        value="1'234",
    ),
    Spoiled(
        "percent signs",
        text("age,share\n41,12%\n"),
        ask="share",
        error="a percent or currency sign",
        value="12",
    ),
    Spoiled(
        "currency signs",
        text("age,cost\n41,5\n36,€ 12.50\n"),
        ask="cost",
        error="line 3",
        value="12.50",
    ),
    Spoiled(
        "scientific notation",
        text("age,bmi\n4.1e1,2.35E+01\n36,\n58,.31e2\n"),
        ALL,
    ),
    Spoiled(
        "entries with white space", text("age, bmi\n 41 , 23.5\n 36 , \n58,\t31\n"), ALL
    ),
    Spoiled("UTF-8 with a byte order mark", text(PLAIN, "utf-8-sig"), ALL),
    Spoiled("UTF-16", text(PLAIN, "utf-16"), ALL),
    Spoiled(
        "Latin-1",
        text("größe,ort\n1.80,Köln\n", "latin-1"),
        {"größe": [1.8]},
        {"ort": ["Köln"]},
    ),
    Spoiled(
        "not what the option encoding says",
        text("größe,ort\n1.80,Köln\n", "latin-1"),
        options={"encoding": "utf-8"},
        error="is not utf-8 throughout",
    ),
    # ---- entries ----
    Spoiled(
        "text in a column of numbers",
        text("age,bmi\n41,23.5\n36,n. d.\n58,31\n"),
        ask="bmi",
        error="1 of 3 entries are not. The first (line 3) is text",
        value="n. d.",
    ),
    Spoiled(
        "the same, named as a missing marker",
        text("age,bmi\n41,23.5\n36,n. d.\n58,31\n"),
        ALL,
        options={"missing": ["n. d."]},
    ),
    Spoiled(
        "-9 for missing, named",
        text("age,bmi\n41,23.5\n36,-9.0\n58,31\n"),
        ALL,
        options={"missing": [-9]},
    ),
    Spoiled(
        "0 for missing in one column, named",
        text("age,sex,bmi\n41,0,23.5\n36,1,0.0\n58,0,31\n"),
        {**ALL, "sex": [0.0, 1.0, 0.0]},
        options={"missing_in": {"bmi": ["0"]}},
    ),
    Spoiled(
        "a column that is not there, with markers of its own",
        text("age,bmi\n41,23.5\n36,\n58,31\n"),
        ask="age",
        options={"missing_in": {"bim": ["0"]}},
        error="missing_in names a column that the file does not have. It names 'bim'.",
    ),
    Spoiled(
        "?, NA, a point and nothing for missing",
        text("age,bmi\n41,23.5\n?,NA\n.,\nnull,NaN\n"),
        {"age": [41.0, NAN, NAN, NAN], "bmi": [23.5, NAN, NAN, NAN]},
    ),
    Spoiled(
        "a column without any entry",
        text("age,bmi\n41,\n36,NA\n"),
        {"age": [41.0, 36.0], "bmi": [NAN, NAN]},
    ),
    Spoiled(
        "long identifiers",
        text("age,patient\n41,12345678901234567890\n36,12345678901234567891\n"),
        ask="patient",
        error="looks like an identifier",
        value="1234567",
    ),
    Spoiled(
        "the same as levels",
        text("age,patient\n41,12345678901234567890\n36,12345678901234567891\n"),
        levels={"patient": ["12345678901234567890", "12345678901234567891"]},
    ),
    Spoiled(
        "dates",
        text("age,seen\n41,2024-01-31\n36,2024-02-01\n"),
        ask="seen",
        error="a date or time",
        value="2024",
    ),
    Spoiled(
        "true and false",
        text("age,smokes\n41,True\n36,FALSE\n"),
        {"smokes": [1.0, 0.0]},
    ),
    Spoiled(
        "yes and no",
        text("age,smokes\n41,yes\n36,no\n"),
        ask="smokes",
        error="Write 1 and 0, or use C()",
    ),
    Spoiled(
        "yes and no as levels",
        text("age,smokes\n41,yes\n36, no\n"),
        levels={"smokes": ["yes", "no"]},
    ),
    Spoiled(
        "infinity",
        text("age,bmi\n41,inf\n"),
        ask="bmi",
        error="is infinite",
    ),
    Spoiled(
        "1, 1.0 and 1.00 as levels, and 007",
        text("cp,code\n1,007\n1.0,07\n1.00,7\n"),
        levels={"cp": ["1", "1", "1"], "code": ["007", "07", "7"]},
    ),
    Spoiled(
        "1.0 in Parquet as a level",
        frame(cp=[1.0, 2.0, None]),
        levels={"cp": ["1", "2", None]},
        file="site.parquet",
    ),
    # ---- Parquet ----
    Spoiled(
        "types of pandas that can be missing",
        frame(
            age=pd.array([41, None], "Int64"),
            smokes=pd.array([True, None], "boolean"),
            ward=pd.Series(["a", None], dtype="category"),
        ),
        {"age": [41.0, NAN], "smokes": [1.0, NAN]},
        {"ward": ["a", None]},
        file="site.parquet",
    ),
    Spoiled(
        "decimals in Parquet",
        pa.table({"cost": pa.array([Decimal("1.10"), None])}),
        {"cost": [1.1, NAN]},
        file="site.parquet",
    ),
    Spoiled(
        "whole numbers of 64 bits in Parquet",
        pa.table({"patient": [2**60, 2**60 + 1]}),
        ask="patient",
        error="looks like an identifier",
        value=str(2**60),
        file="site.parquet",
    ),
    Spoiled(
        "dates in Parquet",
        pa.table({"seen": [datetime.date(2024, 1, 31)]}),
        ask="seen",
        error="a date or time",
        value="2024",
        file="site.parquet",
    ),
    Spoiled(
        "lists in Parquet",
        pa.table({"marks": [[1, 2], [3]]}),
        ask="marks",
        error="lists, structures or binary data",
        file="site.parquet",
    ),
    Spoiled(
        "half of a Parquet file",
        b"PAR1" + bytes(100),
        error="damaged, incomplete or encrypted",
        file="site.parquet",
    ),
    # ---- files ----
    Spoiled("gzip", gzip.compress(text(PLAIN)), ALL, file="site.csv.gz"),
    Spoiled("xz", lzma.compress(text(PLAIN)), ALL, file="site.csv.xz"),
    Spoiled("bzip2", bz2.compress(text(PLAIN)), ALL, file="site.csv.bz2"),
    Spoiled("Zstandard", zstandard(text(PLAIN)), ALL, file="site.csv.zst"),
    Spoiled("gzip without its suffix", gzip.compress(text(PLAIN)), ALL),
    Spoiled(
        "half of a gzip file",
        gzip.compress(text(PLAIN * 99))[:60],
        error="damaged or incomplete",
        file="site.csv.gz",
    ),
    Spoiled("a NUL byte", text("age,bmi\n41,\0\n"), error="has NUL bytes"),
    Spoiled(
        "an Excel workbook",
        b"PK\x03\x04" + bytes(range(256)),
        error="Export the table as CSV or Parquet",
        file="site.xlsx",
    ),
    Spoiled(
        "any other binary file",
        bytes(range(1, 128)) * 9,
        error="not a text file",
        file="site.bin",
    ),
    Spoiled("a folder", None, error="this is a folder", file="tables"),
]


def outcomes() -> Iterator[tuple[Spoiled, str]]:
    """Return every case with what it gives, as a sentence."""
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = case.read(Path(folder))
            except DataError as error:
                yield case, str(error)
            else:
                yield case, "; ".join(_shown(case, *item) for item in found.items())


def _shown(case: Spoiled, name: str, values: list[Any]) -> str:
    kind = "levels" if name in case.levels else "numbers"
    entries = ["missing" if value is None else f"{value}" for value in values]
    return f"{kind} of `{name}`: " + ", ".join(e.replace("\n", " / ") for e in entries)


def spoiled_table() -> str:
    """Return the table in the documentation."""
    lines = ["| the file has | options | result |", "|---|---|---|"]
    for case, outcome in outcomes():
        options = ", ".join(f"`{k} = {_toml(v)}`" for k, v in case.options.items())
        shown = f"**error** {outcome}" if case.error else outcome
        lines.append(f"| {case.what} | {options} | {_escaped(shown)} |")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{name} = {_toml(told)}" for name, told in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'


def _escaped(shown: str) -> str:
    return shown.replace("|", "\\|").replace("<", "&lt;").replace("**53", "\\*\\*53")
