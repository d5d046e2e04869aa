"""The reference as Markdown: names, signatures and docstrings of the public package.

A page of docs/reference says which names it shows, in the mark itself:
``<!-- api FedRidge privacy.compose: written by `make readme` from docstrings -->``.
They are names in `fedridge_flwr`; ``SitePolicy[preset,load]`` shows these two methods
only, ``RidgeModel[]`` none. Docstrings are numpydoc, and of reStructuredText they use
code, lists, blocks after ``::`` and simple tables.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "fedridge_flwr"
FOLDER = ROOT / "docs" / "reference"
SOURCE = "docstrings"
MARK = re.compile(rf"<!-- (api .+|names): written by `make readme` from {SOURCE} -->")
METHODS = (classmethod, staticmethod)
PROPERTIES = (property, cached_property)


class Shown(NamedTuple):
    """A name that a page shows, with the members that it shows of a class."""

    name: str
    members: tuple[str, ...]

    @property
    def value(self) -> Any:
        """What the name stands for."""
        return resolve_name(f"{PACKAGE}.{self.name}")

    @property
    def title(self) -> str:
        """Its heading: parentheses for functions."""
        last = self.name.rpartition(".")[2]
        return last if inspect.isclass(self.value) else f"{last}()"


# ---- which names are where -----------------------------------------------------------


def contents() -> Iterator[tuple[str, Path, Callable[[], str]]]:
    """Yield every place of the reference: its mark, its page and what to write."""
    for page in sorted(FOLDER.glob("*.md")):
        for name in MARK.findall(page.read_text("utf-8")):
            write = _overview if name == "names" else partial(_entries, name)
            yield name, page, partial(write, page)


def _overview(page: Path) -> str:
    lines = []
    for shown in names_on(page):
        link = f"[`{shown.title}`](#{anchors()[shown.name][1]})"
        first = inspect.cleandoc(shown.value.__doc__).split("\n\n")[0]
        lines.append(f"- {link}: {_inline(' '.join(first.split()), page)}")
    return "\n".join(lines)


def _entries(mark: str, page: Path) -> str:
    return "\n\n".join(_entry(shown, page) for shown in _named(mark))


@cache
def _named(mark: str) -> list[Shown]:
    """Return the names in a mark."""
    found = []
    for name, limited, only in re.findall(r"([\w.]+)(\[([\w,]*)\])?", mark[4:]):
        value = resolve_name(f"{PACKAGE}.{name}")
        members = tuple(only.split(",")) if only else ()
        found.append(Shown(name, members if limited else tuple(_members(value))))
    return found


def _members(value: Any) -> Iterator[str]:
    """Yield public methods and properties: its own, then those of unnamed bases."""
    if not inspect.isclass(value):
        return
    root, seen = resolve_name(PACKAGE), set[str]()
    for base in value.__mro__:
        ours = base.__module__.partition(".")[0] == PACKAGE
        if not ours or (base is not value and base.__name__ in root.__all__):
            continue
        for name, member in vars(base).items():
            known = inspect.isfunction(member) or isinstance(
                member, METHODS + PROPERTIES
            )
            documented = known and (member.__doc__ or "").strip()
            if documented and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name


def names_on(page: Path) -> list[Shown]:
    """Return all names that a page shows, in order."""
    marks = MARK.findall(page.read_text("utf-8"))
    return [shown for mark in marks if mark != "names" for shown in _named(mark)]


@cache
def anchors() -> dict[str, tuple[Path, str]]:
    """Return page and anchor of all names, as code hosts and MyST make anchors."""
    found: dict[str, tuple[Path, str]] = {}
    for page in sorted(FOLDER.glob("*.md")):
        text = page.read_text("utf-8")
        text = re.sub(
            r"(?ms)(<!-- (.+?): written by .*?-->).*?<!-- end of \2 -->", r"\1", text
        )
        text = re.sub(r"(?ms)^```.*?^```", "", text)
        used: dict[str, int] = {}
        for line in text.splitlines():
            if heading := re.match(r"#+ (.+)", line):
                _anchor(heading[1], used)
            elif (mark := MARK.match(line)) and mark[1] != "names":
                for shown in _named(mark[1]):
                    found[shown.name] = page, _anchor(shown.title, used)
                    for member in shown.members:
                        full = f"{shown.name}.{member}"
                        title = full.removeprefix(shown.name.rpartition(".")[0] + ".")
                        found[full] = page, _anchor(title, used)
    return found


def _anchor(title: str, used: dict[str, int]) -> str:
    plain = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    used[plain] = count = used.get(plain, -1) + 1
    return f"{plain}-{count}" if count else plain


# ---- one name ------------------------------------------------------------------------


def _entry(shown: Shown, page: Path) -> str:
    value = shown.value
    file = Path(inspect.getsourcefile(inspect.unwrap(value)) or "")
    source = f"[source](../../{file.relative_to(ROOT).as_posix()})"
    error = inspect.isclass(value) and issubclass(value, Exception)
    parts = [f"### {shown.title}"]
    if not error or "__init__" in vars(value):
        called = _signature(f"{PACKAGE}.{shown.name}", value)
        parts.append(f"```python\n{called}\n```")
    parts += [_markdown(value.__doc__, page, shown.name), source]
    class_name = shown.name.rpartition(".")[2]
    for member in shown.members:
        found = inspect.getattr_static(value, member)
        parts.append(f"#### {class_name}.{member}")
        if not isinstance(found, PROPERTIES):
            called = _signature(member, getattr(value, member), bound=found)
            parts.append(f"```python\n{called}\n```")
        parts.append(_markdown(found.__doc__, page, shown.name))
    return "\n\n".join(parts)


def _signature(name: str, value: Any, bound: Any = None) -> str:
    """Return a call with defaults, without annotations, in lines of 88."""
    parameters = list(inspect.signature(value).parameters.values())
    if inspect.isfunction(bound):
        parameters = parameters[1:]  # self
    words, starred = [], False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not starred:
            words, starred = [*words, "*"], True
        starred |= each.kind is each.VAR_POSITIONAL
        words.append(_parameter(each))
    line = f"{name}({', '.join(words)})"
    if len(line) <= 88:
        return line
    kept = ", ".join(word.replace(" ", "\0") for word in words)
    inside = textwrap.fill(kept, 84, break_long_words=False, break_on_hyphens=False)
    inside = inside.replace("\0", " ")
    return f"{name}(\n{textwrap.indent(inside, '    ')}\n)"


def _parameter(each: inspect.Parameter) -> str:
    prefix = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    if each.default is each.empty:
        return prefix + each.name
    default = repr(each.default)
    if default.startswith("<"):  # a function, or the factory of a dataclass
        default = getattr(each.default, "__name__", "...")
    return f"{each.name}={default}"


# ---- docstrings ----------------------------------------------------------------------


def _markdown(doc: str | None, page: Path, owner: str) -> str:
    """Return a docstring as Markdown: text, then its sections."""
    parts = re.split(r"(?m)^(\w[\w ]*)\n-+$", inspect.cleandoc(doc or ""))
    done = [_prose(parts[0], page, owner)]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        lists = title not in ("Notes", "Examples")
        write = _definitions if lists else _prose
        done.append(f"**{title}**\n\n{write(body, page, owner)}")
    return "\n\n".join(done)


def _definitions(body: str, page: Path, owner: str) -> str:
    """Return ``name : type`` with what is indented below it, as items of a list."""
    items = []
    for head, text in re.findall(r"(?m)^(\S.*)\n?((?:(?:[ ]+.*)?\n?)*)", body.strip()):
        name, colon, kind = head.partition(" : ")
        kind = re.sub(r"(?<!`)\b[A-Z]\w+\b(?!`)", lambda m: _known(m[0]), kind)
        typed = f" ({_inline(kind, page, owner)})" if colon else ""
        if colon or not re.fullmatch(r"[\w.]+", name):
            shown = f"`{name}`" if colon or name.startswith("*") else name
        else:
            shown = _inline(f"`{name}`", page, owner)
        told = _prose(textwrap.dedent(text), page, owner)
        items.append(f"- {shown}{typed}: " + textwrap.indent(told, "  ").lstrip())
    return "\n".join(items)


def _prose(text: str, page: Path, owner: str) -> str:
    """Return paragraphs, with blocks of code, examples and tables among them."""
    done: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        first = block.lstrip()
        if first.startswith(">>>"):
            done.append(_example(block))
        elif first.startswith("==="):
            done.append(_table(block, page, owner))
        elif done and done[-1].endswith("::") and block.startswith(" "):
            done[-1] = done[-1].removesuffix(":")
            done.append(f"```text\n{textwrap.dedent(block)}\n```")
        else:
            done.append(_inline(block, page, owner))
    return "\n\n".join(done)


def _example(block: str) -> str:
    plain = re.sub(r"(?m)\s+# doctest: .*$", "", textwrap.dedent(block))
    return f"```pycon\n{plain.replace('<BLANKLINE>', '')}\n```"


def _table(block: str, page: Path, owner: str) -> str:
    """Return a simple table; a row without a first cell continues the last one."""
    rule, *lines = block.splitlines()
    starts = [match.start() for match in re.finditer(r"=+", rule)]
    ends = [*starts[1:], None]
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith("==="):
            continue
        cells = [line[a:b].strip() for a, b in zip(starts, ends, strict=True)]
        if cells[0] or not rows:
            rows.append(cells)
        else:
            rows[-1] = [
                f"{a} {b}".strip() for a, b in zip(rows[-1], cells, strict=True)
            ]
    head, *rest = [
        [_inline(cell, page, owner).replace("|", r"\|") for cell in row] for row in rows
    ]
    shown = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown)


def _inline(text: str, page: Path, owner: str = "") -> str:
    """Return text with code in single backticks, and names of the package as links."""

    def replace(match: re.Match[str]) -> str:
        if match[1] is not None:
            return f"`{match[1]}`"
        place = _find(match[2])
        if place is None or match[2] == owner:
            return f"`{match[2]}`"
        where, anchor = place
        return f"[`{match[2]}`]({'' if where == page else where.name}#{anchor})"

    return re.sub(r"``(.+?)``|`([^`]+)`", replace, text, flags=re.DOTALL)


def _known(name: str) -> str:
    """Return a name in backticks if the reference has it."""
    return f"`{name}`" if _find(name) else name


def _find(name: str) -> tuple[Path, str] | None:
    """Return the place of a name, which may lack its room: `drift`, `solve`."""
    rooms = ("", "features.", "privacy.", "regression.")
    return next((anchors()[r + name] for r in rooms if r + name in anchors()), None)
