"""A ledger as files for people: statistics by client, and who and when as JSON."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import LedgerError

if TYPE_CHECKING:
    from .contribution_ledger import Ledger


def export_ledger(ledger: "Ledger", folder: Path) -> None:
    """Write every contribution, the total, and what is known of them."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise LedgerError(
            f"{folder} exists: export into a new folder, so that no file of another "
            "time is left in it."
        ) from None
    told, file = [], ledger._file
    with file.reading():  # all of it as it is at one moment
        file.check_roster()
        for number, entry in enumerate(file.entries().values(), start=1):
            # A client's name is no safe name of a file.
            name = f"{number:06d}.stats"
            file.part(entry).save(folder / name)
            about = {"client": entry.client, "file": name, "n_rows": entry.n_rows}
            told.append({**about, "uploads": entry.sequence, "time": entry.time})
        if told:
            file.total().stats.save(folder / "total.stats")
        history = [change._asdict() for change in file.changes()]
    content = {"clients": told, "history": history}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (folder / "ledger.json").write_text(text, encoding="utf-8")
