"""The rules of a site about rows, in the order in which their reasons are told.

None of them is asked about a private release: its noise covers each record, while a
refusal that depends on one record would tell that it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from ..._text import counted
from ...data.local_table import RowOrigin
from ...data.rows import Rows
from .rare_values import effective_number, rare_levels, rare_values, rare_weights

if TYPE_CHECKING:
    from .disclosure import SitePolicy

_CANNOT = "cannot be checked on finished statistics (let load_data return the rows)"


class RowRule:
    """A rule about rows, and what becomes of it where there are no rows.

    Of finished statistics a rule declines all, unless it has an `of_statistics` of its
    own: what is not checked must not pass.

    Attributes
    ----------
    field : str
        The field of `SitePolicy` in which the rule is given.
    """

    field: ClassVar[str]

    def of_rows(
        self, policy: SitePolicy, rows: Rows, mapped: Rows, origin: RowOrigin | None
    ) -> Iterator[str]:
        """Yield why rows are declined; `mapped` are the same after the feature map."""
        raise NotImplementedError

    def of_statistics(self, policy: SitePolicy, stats: Any) -> Iterator[str]:
        """Yield why statistics of rows that are elsewhere are declined."""
        given = getattr(policy, self.field)
        if given != getattr(type(policy), self.field):
            yield f"{self.field}={given} {_CANNOT}"

    def of_table(
        self, policy: SitePolicy, n_rows: int, origin: RowOrigin
    ) -> Iterator[str]:
        """Yield why a table is not described; by default its rows are waited for."""
        return iter(())

    def of_weights(self, policy: SitePolicy, rows: Rows) -> Iterator[str]:
        """Yield why rows are declined for weights that a server's model gives them."""
        return iter(())


class FewRows(RowRule):
    """Least number of rows with nonzero weight."""

    field = "min_rows"

    def of_number(self, policy: SitePolicy, n_rows: int) -> Iterator[str]:
        """Yield that there are too few rows, if so."""
        if n_rows < policy.min_rows:
            yield f"min_rows={policy.min_rows}, but there are {n_rows}"

    def of_rows(
        self, policy: SitePolicy, rows: Rows, mapped: Rows, origin: RowOrigin | None
    ) -> Iterator[str]:
        """Count the rows with weight."""
        return self.of_number(policy, rows.n_filled)

    def of_statistics(self, policy: SitePolicy, stats: Any) -> Iterator[str]:
        """Take the number that statistics carry."""
        return self.of_number(policy, filled_rows(stats))

    def of_table(
        self, policy: SitePolicy, n_rows: int, origin: RowOrigin
    ) -> Iterator[str]:
        """Count all rows."""
        return self.of_number(policy, n_rows)


class ManyColumns(RowRule):
    """Largest number of columns, after the feature map, for each row."""

    field = "max_columns_per_row"

    def of_rows(
        self, policy: SitePolicy, rows: Rows, mapped: Rows, origin: RowOrigin | None
    ) -> Iterator[str]:
        """Compare with the rows that have weight."""
        width = mapped.n_features + mapped.n_targets
        return self._of_size(policy, rows.n_filled, width)

    def of_statistics(self, policy: SitePolicy, stats: Any) -> Iterator[str]:
        """Take the numbers that statistics carry."""
        width = stats.n_features + stats.n_targets
        return self._of_size(policy, filled_rows(stats), width)

    def _of_size(self, policy: SitePolicy, n_rows: int, width: int) -> Iterator[str]:
        ratio = policy.max_columns_per_row
        if ratio is not None and width > ratio * n_rows:
            yield (
                f"max_columns_per_row={ratio:g}, but there are {width} columns for "
                f"{counted(n_rows, 'row')}"
            )


class HeavyRows(RowRule):
    """Least effective number of rows, so that one cannot outweigh all others."""

    field = "min_rows"

    def of_rows(
        self, policy: SitePolicy, rows: Rows, mapped: Rows, origin: RowOrigin | None
    ) -> Iterator[str]:
        """Look at the weights that rows came with."""
        return self.of_weights(policy, rows)

    def of_statistics(self, policy: SitePolicy, stats: Any) -> Iterator[str]:
        """Decline weights: statistics have their sum, and not how unequal they are."""
        weighted = stats.n_filled is not None or stats.scale()[0] != stats.count
        if policy.min_rows > 1 and weighted:
            yield (
                f"min_rows={policy.min_rows} {_CANNOT}: {counted(stats.count, 'row')} "
                "have weights, of which one may outweigh all others"
            )

    def of_weights(self, policy: SitePolicy, rows: Rows) -> Iterator[str]:
        """Compare the effective number; that of all rows is another rule."""
        n_rows, effective = rows.n_filled, effective_number(rows)
        if n_rows >= policy.min_rows > effective:
            yield (
                f"min_rows={policy.min_rows}, but with their weights {n_rows} rows "
                f"count as only {effective:.3g}"
            )


class RareValues(RowRule):
    """Least number of rows with another than a column's most common value."""

    field = "min_rows_per_level"

    def of_rows(
        self, policy: SitePolicy, rows: Rows, mapped: Rows, origin: RowOrigin | None
    ) -> Iterator[str]:
        """Count in weights, levels and columns, before and after the feature map."""
        least = policy.min_rows_per_level
        if least > 1:
            yield from rare_weights(rows, least)
            yield from rare_levels(origin, least)
            yield from rare_values(rows, least)
            if mapped is not rows:
                yield from rare_values(mapped, least, " after the feature map")

    def of_table(
        self, policy: SitePolicy, n_rows: int, origin: RowOrigin
    ) -> Iterator[str]:
        """Count in levels, which the description names."""
        return rare_levels(origin, policy.min_rows_per_level)


class SimilarUploads(RowRule):
    """Least number of rows in which two uploads differ."""

    field = "min_row_difference"

    def of_rows(
        self, policy: SitePolicy, rows: Rows, mapped: Rows, origin: RowOrigin | None
    ) -> Iterator[str]:
        """Wait until there is an answer: `SitePolicy.remember` compares uploads."""
        return iter(())


FEW_ROWS = FewRows()
ROW_RULES: tuple[RowRule, ...] = (
    FEW_ROWS,
    ManyColumns(),
    HeavyRows(),
    RareValues(),
    SimilarUploads(),
)
"""All rules about rows."""


def filled_rows(stats: Any) -> int:
    """Return how many rows of statistics have weight, as far as it is known."""
    found: int = stats.count if stats.n_filled is None else stats.n_filled
    return found
