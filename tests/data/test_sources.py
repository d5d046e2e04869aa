"""Table files: the same rows whatever wrote them, in whatever dialect."""

from __future__ import annotations

import gzip
import io
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedridge_flwr import DataError, TableFormula, read_table
from fedridge_flwr.cli.fit import fit_tables
from fedridge_flwr.data.site_files import find_site_files
from fedridge_flwr.data.sources import TableFile, TableOptions, client_values
from fedridge_flwr.data.table_options import MISSING
from fedridge_flwr.data.table_text import Utf8Stream

HEART = [
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang"),
    *("oldpeak", "slope", "ca", "thal", "num"),
]


def write(folder: Path, text: str, name: str = "site.csv", encoding="utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def whole(table: TableFile, rows: int = 65_536) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in table.names}
    for batch in table.batches(rows=rows):
        for name, array in batch.items():
            found[name] += array.to_pylist()
    return found


def numbers(table: TableFile, column: str) -> np.ndarray:
    return np.concatenate([b.numbers(column) for b in table.batches([column])])


# ---- any writer, any dialect ---------------------------------------------------------

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)
WHOLE = st.integers(-(2**53) + 1, 2**53 - 1)
TEXT = st.text(st.sampled_from("abäß€ ,;|\t\"\n'#.1234"), max_size=8)
NAMES = st.lists(
    st.text(st.sampled_from("abcäöXYZ_ "), min_size=1, max_size=6)
    .map(lambda name: " ".join(name.split()))
    .filter(lambda name: name and name not in MISSING),
    min_size=2,
    max_size=4,
    unique=True,
)


@st.composite
def frames(draw: Any) -> pd.DataFrame:
    names, n = draw(NAMES), draw(st.integers(1, 6))
    columns = {}
    for name in names:
        kind = draw(st.sampled_from([FLOATS, WHOLE, TEXT]))
        entries = st.one_of(st.none(), kind) if kind is not WHOLE else kind
        columns[name] = draw(st.lists(entries, min_size=n, max_size=n))
    return pd.DataFrame(columns)


def cleaned(value: Any) -> Any:
    """What an entry is after white space and missing markers are gone."""
    if value is None or value != value:
        return None
    if isinstance(value, str):
        value = value.strip()
        return None if value in MISSING else value
    return float(value)


def same(table: TableFile, frame: pd.DataFrame) -> None:
    assert table.names == tuple(frame.columns)
    found = whole(table)
    for name in frame.columns:
        expected = [cleaned(value) for value in frame[name].tolist()]
        texts = [value for value in expected if isinstance(value, str)]
        got = found[name] if texts else numbers(table, name).tolist()
        if not texts:
            got = [None if math.isnan(value) else value for value in got]
        assert got == expected


def as_text(frame: pd.DataFrame, writer: str, delimiter: str, decimal: str) -> str:
    if writer == "polars":
        return pl.from_pandas(frame, nan_to_null=True).write_csv(separator=delimiter)
    if writer == "pyarrow":
        sink = io.BytesIO()
        options = pa.csv.WriteOptions(delimiter=delimiter)
        pa.csv.write_csv(
            pa.Table.from_pandas(frame, preserve_index=False), sink, options
        )
        return sink.getvalue().decode()
    text = frame.to_csv(index=False, sep=delimiter, decimal=decimal)
    assert text is not None
    return text


DIALECT = {
    "frame": frames(),
    "writer": st.sampled_from(["pandas", "polars", "pyarrow"]),
    "delimiter": st.sampled_from([",", ";", "\t", "|"]),
    "decimal": st.sampled_from([".", ","]),
    "encoding": st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
}
many = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@many
@given(**DIALECT)
def test_any_writer_and_dialect_comes_back_the_same(
    tmp_path, frame, writer, delimiter, decimal, encoding
) -> None:
    """With the options given, whatever the entries look like."""
    if writer != "pandas" or decimal == delimiter:
        decimal = "."
    if decimal == ",":  # "1.5" and "1,5" as text would be the same level, so refused
        frame = frame.map(lambda v: v.translate({44: 95, 46: 95}) if v is str(v) else v)
    path = write(
        tmp_path, as_text(frame, writer, delimiter, decimal), encoding=encoding
    )
    options = TableOptions(
        delimiter=delimiter, decimal=decimal, encoding=encoding, header=True
    )
    same(TableFile(path, options), frame)


@many
@given(**DIALECT)
def test_what_is_detected_is_right_or_refused(
    tmp_path, frame, writer, delimiter, decimal, encoding
) -> None:
    """Numbers are never other numbers, and no row is lost."""
    if writer != "pandas":
        decimal = "."
    frame = frame.map(lambda v: v.translate({44: 95, 46: 95}) if v is str(v) else v)
    path = write(
        tmp_path, as_text(frame, writer, delimiter, decimal), encoding=encoding
    )
    if encoding == "cp1252" and "€" in path.read_text("cp1252"):
        return  # may also be UTF-8, of other letters
    try:
        same(TableFile(path), frame)
    except DataError as error:
        assert str(error).startswith("site.csv: ")  # noqa: PT017


@many
@given(frame=frames(), by=st.sampled_from(["pandas", "polars"]), rows=st.integers(1, 9))
def test_parquet_comes_back_the_same(tmp_path, frame, by, rows) -> None:
    path = tmp_path / "site.parquet"
    if by == "pandas":
        frame.to_parquet(path, index=False)
    else:
        pl.from_pandas(frame).write_parquet(path)
    table = TableFile(path)
    same(table, frame)
    assert whole(table, rows) == whole(table)


# ---- batches -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["site.csv", "site.parquet"])
@pytest.mark.parametrize("rows", [1, 7, 1000, 5000, 100_000])
def test_batches_have_the_rows_that_were_asked_for(tmp_path, name, rows) -> None:
    frame = pd.DataFrame({"a": np.arange(5000), "b": np.arange(5000) % 3})
    path = tmp_path / name
    if name.endswith("csv"):
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, row_group_size=999)
    batches = list(TableFile(path).batches(["b", "a"], rows=rows))
    assert {len(batch["a"]) for batch in batches[:-1]} <= {rows}
    assert list(batches[0]) == ["b", "a"]
    assert np.concatenate([b.numbers("a") for b in batches]).tolist() == list(
        range(5000)
    )
    assert [row for batch in batches for row in batch.rows] == list(range(5000))


def test_a_file_is_opened_anew_at_every_pass(tmp_path) -> None:
    table = TableFile(write(tmp_path, "a,b\n1,2\n"))
    first, second = table.batches(["a"]), table.batches(["b"])
    assert next(first).numbers("a") == [1.0]
    assert next(second).numbers("b") == [2.0]
    assert whole(table) == whole(table) == {"a": ["1"], "b": ["2"]}


def test_what_a_column_is_does_not_depend_on_its_first_block(tmp_path) -> None:
    """A million whole numbers, and then one that is none."""
    path = write(tmp_path, "a,b\n" + "1,2\n" * 800_000 + "1.5,x\n")
    table = TableFile(path)
    assert numbers(table, "a")[[0, -1]].tolist() == [1.0, 1.5]
    with pytest.raises(DataError, match=r"column 1 \('b'\).*\(line 800002\) is text"):
        numbers(table, "b")


def test_one_file_with_a_client_column(tmp_path) -> None:
    text = "school;score\n1;1.5\n2.0;2.5\n1.0;3.5\nb;x\n;9.5\n"
    path = write(tmp_path, text)
    assert client_values(path, "school") == ["1", "2", "b"]
    for level in ("1", "1.0"):
        table = TableFile(path, where=("school", level))
        assert numbers(table, "score").tolist() == [1.5, 3.5]
        assert [list(batch.rows) for batch in table.batches(["score"])] == [[0, 2]]
    with pytest.raises(DataError, match=r"line 5\) is text"):
        numbers(TableFile(path, where=("school", "b")), "score")
    with pytest.raises(DataError, match="no row has the level"):
        numbers(TableFile(path, where=("school", "7")), "score")
    with pytest.raises(DataError, match="no column 'town'"):
        TableFile(path, where=("town", "7"))


@pytest.mark.parametrize("ending", [";9.5\n", ";9.5\nc;1\nNA;2\n"])
def test_rows_of_no_client_are_refused_or_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    path = write(tmp_path, f"school;score\n1;1.5\n2.0;2.5\nb;4\n{ending}")
    lost = "1 of 4" if ending == ";9.5\n" else "2 of 6"
    told = rf"{lost} rows have no value in column 'school' \(the first is line 5\)"
    with pytest.raises(DataError, match=told):
        find_site_files(path, client_column="school")
    with caplog.at_level("WARNING", "flwr"):
        found = find_site_files(path, client_column="school", strict=False)
    assert [each.name for each in found][:3] == ["1", "2", "b"]
    assert re.search(f"{told}.*left out", caplog.text)
    caplog.clear()
    find_site_files(write(tmp_path, "school;score\n1;2\n"), client_column="school")
    assert not caplog.text


def test_the_client_column_is_not_among_all_other_columns(tmp_path: Path) -> None:
    lines = "".join(f"{k % 2};{k};{k * k};{k % 3}\n" for k in range(20))
    path = write(tmp_path, f"school;x;y;z\n{lines}")
    (table, _) = (file.open() for file in find_site_files(path, client_column="school"))
    assert list(read_table(table, "y ~ .")[0].columns) == ["x", "z"]
    assert list(read_table(table, "y ~ x + school")[0].columns) == ["x", "school"]
    assert list(read_table(path, "y ~ .")[0].columns) == ["school", "x", "z"]
    fit = fit_tables(
        str(path), TableFormula("y ~ ."), client_column="school", alpha=1.0
    )
    assert list(fit.model_.feature_names_in_) == ["x", "z"]
    formula = TableFormula("y ~ x + C(school)")
    fit = fit_tables(str(path), formula, client_column="school", alpha=1.0)
    assert list(fit.model_.feature_names_in_) == ["x", "C(school)[T.1]"]


def test_lines_are_those_of_an_editor(tmp_path) -> None:
    text = 'note,a\n\n"two\nlines",1\n\n  \nx,2\n"y\n\n",bad\n'
    table = TableFile(write(tmp_path, text))
    with pytest.raises(DataError, match=r"1 of 3 .*\(line 8\)"):
        numbers(table, "a")


@pytest.mark.parametrize("size", [10, 1 << 20, (1 << 20) + 1])
def test_quotes_are_checked_across_chunks(tmp_path, size) -> None:
    filler = "x" * (size - 6)
    good = write(tmp_path, f'a,b\n1,"{filler}""{filler}"\n2,""\n', "good.csv")
    assert numbers(TableFile(good), "a").tolist() == [1.0, 2.0]
    bad = write(tmp_path, f'a,b\n1,{filler}\n2,"{filler}\n3,"x"\n', "bad.csv")
    with (
        Utf8Stream(bad, "utf-8", ",") as file,
        pytest.raises(DataError, match="line 3"),
    ):
        file.read()


def test_a_file_of_many_columns(tmp_path) -> None:
    names = [f"a_long_name_of_a_column_{j}" for j in range(30_000)]
    line = ",".join(f"{j}.25" for j in range(30_000))
    table = TableFile(write(tmp_path, "\n".join([",".join(names), line, line, ""])))
    assert table.names == tuple(names)
    assert numbers(table, names[-1]).tolist() == [29_999.25] * 2


def test_latin_1_after_the_part_that_is_looked_at(tmp_path) -> None:
    text = "a,b\n" + "1,x\n" * 100_000 + "2,ä\n"
    path = write(tmp_path, text, encoding="latin-1")
    assert len(numbers(TableFile(path), "a")) == 100_001
    with pytest.raises(DataError, match='encoding = "cp1252"'):
        whole(TableFile(path))
    assert whole(TableFile(path, TableOptions(encoding="cp1252")))["b"][-1] == "ä"


def test_decimal_commas_after_the_part_that_is_looked_at_are_refused(tmp_path) -> None:
    path = write(tmp_path, "a;b\n" + "1;2\n" * 100_000 + "1,5;2\n")
    with pytest.raises(DataError, match=r'line 100002\).*Set decimal = ","'):
        numbers(TableFile(path), "a")
    assert numbers(TableFile(path, TableOptions(decimal=",")), "a")[-1] == 1.5
    path = write(tmp_path, "a;b\n" + "1,5;2\n" * 100_000 + "1.5;2\n")
    with pytest.raises(DataError, match=r"decimal point \(line 100002\)"):
        numbers(TableFile(path), "a")


def test_two_sites_with_different_dialects_agree(tmp_path) -> None:
    one = TableFile(write(tmp_path, "cp,bmi\n1,2.50\n2,\n", "one.csv"))
    text = "bmi;cp\n2,5;1.0\n;2.0\n".replace(".0", "")
    other = TableFile(write(tmp_path, text, "other.csv"))
    for column in ("cp", "bmi"):
        np.testing.assert_array_equal(numbers(one, column), numbers(other, column))


# ---- options -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "age"}, "columns must be a list of names"),
        ({"columns": ["a", "a"]}, "all different"),
        ({"delimiter": ";;"}, "one character"),
        ({"delimiter": '"'}, "one character"),
        ({"decimal": "'"}, "decimal must be"),
        ({"decimal": ",", "delimiter": ","}, "the same character"),
        ({"encoding": "klingon"}, "one that Python knows"),
        ({"header": "yes"}, "true or false"),
        ({"header": False}, "columns must name"),
        ({"missing": "-9"}, "missing must be a list"),
        ({"missing": {"chol": ["0"]}}, 'missing_in = { chol = \\["0"\\] }'),
        ({"missing_in": ["0"]}, "missing_in must be markers by column"),
        ({"missing_in": {"chol": "0"}}, "missing must be a list"),
        ({"missing_in": {"chol": ["0"], " chol": ["9"]}}, "two entries for one column"),
        ({"sep": ";"}, "Options are: columns, delimiter, decimal, encoding"),
    ],
)
def test_options_that_are_not_valid(options, message, tmp_path) -> None:
    with pytest.raises(DataError, match=message):
        TableOptions.from_mapping(options)


def test_options_in_a_file(tmp_path) -> None:
    path = tmp_path / "table.toml"
    path.write_text('columns = ["age", "sex"]\nmissing = [-9]\n', encoding="utf-8")
    expected = TableOptions(columns=("age", "sex"), missing=("-9",))
    assert TableOptions.from_toml(path) == expected
    for text in ("colums = []", "columns ="):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=r"^table.toml") as caught:
            TableOptions.from_toml(path)
        assert str(tmp_path) not in str(caught.value)
    with pytest.raises(DataError, match=r"^other.toml cannot be read"):
        TableOptions.from_toml(tmp_path / "other.toml")


@pytest.mark.parametrize("kind", ["csv", "decimal commas", "parquet"])
def test_markers_of_single_columns(kind: str, tmp_path) -> None:
    frame = pd.DataFrame({"a": [0.0, 1.5, 2.5], "b": [0.0, 1.5, -9.0]})
    path = tmp_path / "table.any"
    if kind == "parquet":
        frame.to_parquet(path)
    elif kind == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_csv(path, index=False, sep=";", decimal=",")
    options = TableOptions(missing=["-9"], missing_in={"b": ["0", "1.5"]})
    assert hash(options) == hash(
        TableOptions(missing=[-9], missing_in=options.missing_in)
    )
    (batch,) = TableFile(path, options).batches()
    assert batch.numbers("a").tolist() == [0.0, 1.5, 2.5]
    assert np.isnan(batch.numbers("b")).all()
    if kind == "decimal commas":
        options = TableOptions(missing_in={"b": ["1,5"]}, missing=["2,5"])
        (batch,) = TableFile(path, options).batches()
        assert np.isnan(batch.numbers("b")).tolist() == [False, True, False]
        assert np.isnan(batch.numbers("a")).tolist() == [False, False, True]
    with pytest.raises(DataError, match="It names 'c'") as caught:
        TableFile(path, TableOptions(missing_in={"c": ["0"]}))
    assert "'c'" not in caught.value.anonymous()


def test_an_ambiguous_delimiter_is_refused(tmp_path) -> None:
    path = write(tmp_path, "a,b;c,d\n1,2;3,4\n")
    with pytest.raises(DataError, match="Set the option delimiter"):
        TableFile(path)
    assert TableFile(path, TableOptions(delimiter=";")).names == ("a,b", "c,d")


def test_the_core_needs_no_pyarrow() -> None:
    code = (
        "import sys\n"
        "sys.modules['pyarrow'] = sys.modules['formulaic'] = None\n"
        "import fedridge_flwr\n"
        "from fedridge_flwr.data.sources import TableFile\n"
        "try:\n"
        "    TableFile(sys.argv[1])\n"
        "except fedridge_flwr.DataError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", code, __file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pip install 'fedridge-flwr[tables]'" in done.stdout


# ---- real files ----------------------------------------------------------------------


@pytest.mark.parametrize("site", ["cleveland", "hungarian", "switzerland", "va"])
def test_heart_disease_as_pandas_reads_it(site, shared_data) -> None:
    path = shared_data("heart_disease") / f"processed.{site}.data"
    table = TableFile(path, TableOptions(columns=HEART))
    expected = pd.read_csv(path, names=HEART, na_values="?")
    for name in HEART:
        np.testing.assert_array_equal(
            numbers(table, name), expected[name].astype(float)
        )


def test_beijing_as_pandas_reads_it(shared_data) -> None:
    path = next(shared_data("beijing_air").glob("*Huairou*.gz"))
    table, expected = TableFile(path), pd.read_csv(path)
    assert table.names == tuple(expected.columns)
    for name in expected.columns.drop(["wd", "station"]):
        np.testing.assert_array_equal(
            numbers(table, name), expected[name].astype(float)
        )
    with gzip.open(path, "rt") as file:
        assert len(file.readlines()) == len(expected) + 1
    assert client_values(path, "wd") == sorted(expected["wd"].dropna().unique())


def test_parquet_is_read_without_its_other_columns(tmp_path) -> None:
    path = tmp_path / "site.parquet"
    pq.write_table(pa.table({" a ": [1, 2], "lists": [[1], [2]], "a.b": [3, 4]}), path)
    table = TableFile(path)
    assert table.names == ("a", "lists", "a.b")
    assert numbers(table, "a").tolist() == [1.0, 2.0]
    assert numbers(table, "a.b").tolist() == [3.0, 4.0]


def test_a_file_that_was_written_again_is_looked_at_again(tmp_path: Path) -> None:
    """How a file is written is remembered, as long as it is the same file."""
    path = write(tmp_path, "a,b\n1,2\n")
    assert whole(TableFile(path)) == {"a": ["1"], "b": ["2"]}
    write(tmp_path, "b;a\n1;25\n")
    assert whole(TableFile(path)) == {"b": ["1"], "a": ["25"]}
    other = TableFile(path, TableOptions(columns=["x", "y"], header=True))
    assert other.names == ("x", "y")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["heart.north.csv", "heart.south.csv"], ["north", "south"]),
        (["heart.north.csv", "south.csv"], ["heart.north", "south"]),
        (["heart.csv", "heart.south.csv"], ["heart", "heart.south"]),
        (["heart.north.csv"], ["heart.north"]),
        (["site_1.csv", "site_2.csv"], ["site_1", "site_2"]),
    ],
)
def test_sites_of_a_folder_have_the_names_that_tell_them_apart(
    files: list[str], expected: list[str], tmp_path
) -> None:
    for name in files:
        (tmp_path / name).write_text("a\n1\n", encoding="utf-8")
    assert [site.name for site in find_site_files(tmp_path)] == expected
    if expected == ["north", "south"]:
        found = find_site_files(tmp_path / "heart.*.csv")
        assert [site.name for site in found] == expected
