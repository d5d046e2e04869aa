"""`SaveStatistics`: statistics as files of their owner."""

import os
from pathlib import Path
from typing import ClassVar, Self


class SaveStatistics:
    """Gives statistics `save` and `load`."""

    form: ClassVar[str]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to a file from which they come back bit for bit.

        Two files that differ by one person's row reveal that row: protect them as you
        protect the rows. Only the owner of the file can read it.

        Parameters
        ----------
        path : path-like
            File to write; missing folders are made, an existing file is replaced.

        Raises
        ------
        StatisticsError
            If no rows can have these statistics, as after a removal of nearly all rows
            of which rounding left too little: nothing is written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from fedridge_flwr import SufficientStatistics
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "may.stats"
        >>> SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0]).save(file)
        >>> june = SufficientStatistics.from_data([[2.0], [5.0]], [3.0, 4.0])
        >>> SufficientStatistics.load(file) + june
        SufficientStatistics(4 rows, 1 feature, 1 target)
        """
        from .statistics_file import write_statistics

        write_statistics(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return what `save` wrote, after checking it.

        Parameters
        ----------
        path : path-like
            The file.

        Raises
        ------
        StatisticsError
            If it is damaged, or another file, or no rows have these statistics.
        FileNotFoundError
            If there is none.
        """
        from .statistics_file import read_statistics

        found: Self = read_statistics(Path(path), cls.form)
        return found
