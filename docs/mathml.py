"""Formulas as MathML, which browsers draw themselves: no script, nothing to fetch."""

from __future__ import annotations

from typing import Any

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def inline(translator: Any, node: Any) -> None:
    """Write a formula in running text."""
    translator.body.append(convert(node.astext(), display="inline"))
    raise SkipNode


def block(translator: Any, node: Any) -> None:
    """Write a formula on a line of its own."""
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
