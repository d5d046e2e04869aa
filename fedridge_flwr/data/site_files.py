"""Tables of several sites in one place: a folder, a pattern, or a column of one file.

That is how a simulation and a rehearsal find the table of every client. In a deployment
each site names a file of its own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._text import quoted
from ..errors import DataError
from .sources import TableFile, client_rows
from .table_options import TableOptions

OPTIONS_FILE = "table.toml"
"""Beside the tables: how they are to be read."""
TABLE_OPTIONS = "table options"
"""What a report calls them."""
# In a folder of tables, a .txt is more often a note about them: a pattern takes it.
_SUFFIXES = (".csv", ".tsv", ".data", ".parquet", ".pq")
_COMPRESSED = (".gz", ".xz", ".zst", ".bz2")

log = logging.getLogger("flwr")


@dataclass(frozen=True)
class SiteFile:
    """The table of one site: its name, and where it is.

    Parameters
    ----------
    name : str
        What reports call the site.
    path : Path
        The file.
    options : TableOptions
        How it is read.
    where : tuple of str, optional
        Column and level of the rows that belong to the site, if the file has others.
    """

    name: str
    path: Path
    options: TableOptions = field(default_factory=TableOptions)
    where: tuple[str, str] | None = None

    def open(self) -> TableFile:
        """Return the table."""
        return TableFile(self.path, self.options, self.where)


def table_options(data: Path, given: str | Path | None = None) -> TableOptions:
    """Return the options in a file that is named, or lies beside the tables."""
    if given:
        return TableOptions.from_toml(given)
    beside = (data if data.is_dir() else data.parent) / OPTIONS_FILE
    return TableOptions.from_toml(beside) if beside.exists() else TableOptions()


def table_facts(
    data: str | Path, *, client_column: str = "", table: str | Path | None = None
) -> dict[str, str]:
    """Return what a report says of how the tables were read, where that was given."""
    told = {
        "client column": client_column,
        TABLE_OPTIONS: table_options(Path(data), table).text,
    }
    return {name: text for name, text in told.items() if text}


def find_site_files(
    data: str | Path,
    *,
    client_column: str = "",
    table: str | Path | None = None,
    strict: bool = True,
) -> list[SiteFile]:
    """Return the tables of all sites, in the order of their names.

    Parameters
    ----------
    data : path
        A folder with one file for each site, a pattern such as
        ``"heart/processed.*.data"``, or one file with a column that tells sites apart.
    client_column : str
        That column.
    table : path, optional
        TOML file of `TableOptions`; by default ``table.toml`` beside the tables.
    strict : bool
        Whether rows without a value in `client_column`, which belong to no client, are
        an error; otherwise the log says how many there are.

    Raises
    ------
    DataError
        If there are no tables, or two of one name, or rows of no client.
    """
    place = Path(data)
    options = table_options(place, table)
    if place.is_dir():
        paths = sorted(path for path in place.iterdir() if _is_table(path))
    elif any(sign in place.name for sign in "*?["):
        paths = sorted(path for path in place.parent.glob(place.name) if path.is_file())
    elif place.exists():
        paths = [place]
    else:
        raise DataError(f"there is no file or folder {str(data)!r}.")
    if not paths:
        raise DataError(
            f"there are no tables in {place.name!r}: it must be a folder with one file "
            f"for each site ({', '.join(_SUFFIXES)}), or a pattern such as data/*.csv."
        )
    if client_column:
        if len(paths) > 1:
            raise DataError("client_column is for one file with the rows of all sites.")
        values, lost = client_rows(paths[0], client_column, options)
        if lost and strict:
            raise DataError(
                f"{paths[0].name}: {lost}. Fill in the column, or remove these rows; "
                "if strict is false, they are left out."
            )
        if lost:
            log.warning("%s: %s, and are left out.", paths[0].name, lost)
        return [
            SiteFile(value, paths[0], options, (client_column, value))
            for value in values
        ]
    names = _names(paths, place.name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"several tables have the name {quoted(twice)}.")
    return [SiteFile(*each, options) for each in zip(names, paths, strict=True)]


def _is_table(path: Path) -> bool:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    visible = path.is_file() and not path.name.startswith(".")
    return visible and bool(suffixes) and suffixes[-1] in _SUFFIXES


def _names(paths: list[Path], pattern: str) -> list[str]:
    """Return what stands for the star of a pattern, or names without endings.

    Of ``heart.north.csv`` and ``heart.south.csv`` in a folder, what tells them apart.
    """
    before, star, after = pattern.partition("*")
    if star and not any(sign in after for sign in "*?[") and "?" not in before:
        return [path.name[len(before) : len(path.name) - len(after)] for path in paths]
    names = [_without_endings(path) for path in paths]
    parts = [name.partition(".") for name in names]
    if len(names) > 1 and len({first for first, _, _ in parts}) == 1:
        rest = [rest for _, _, rest in parts]
        return rest if all(rest) else names
    return names


def _without_endings(path: Path) -> str:
    name = path.name
    for endings in (_COMPRESSED, (*_SUFFIXES, ".txt")):
        for ending in endings:
            if name.lower().endswith(ending):
                name = name[: -len(ending)]
                break
    return name


def own_site_file(node_config: dict[str, Any]) -> SiteFile:
    """Return the table that a site's node-config names: ``data`` and ``table``."""
    path = Path(str(node_config["data"]))
    named = node_config.get("table")
    options = table_options(path, None if named is None else str(named))
    return SiteFile(str(node_config.get("name", path.name)), path, options)
