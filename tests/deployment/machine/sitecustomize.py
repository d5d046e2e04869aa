"""What may be wrong with a machine: its clock, or the packages on it.

It is on PYTHONPATH of the processes of a test and runs when they start. FAULTY_MACHINE
is a folder; files in it say what is wrong, for every program or for one of them
(``flwr-serverapp.shift``):

- ``shift``: seconds by which the clock is ahead, read again at every look at it;
- ``path``: a folder in which packages are looked for first;
- ``absent``: a package that is not installed.

Every program that has a shift leaves its time in ``<program>.time``, as a proof.
"""

import os
import sys
from pathlib import Path

_FOLDER = Path(os.environ.get("FAULTY_MACHINE", "/nonexistent"))
# sys.argv is not there yet.
_PROGRAM = Path(sys.orig_argv[1]).name if len(sys.orig_argv) > 1 else ""


def _told(name):
    for file in (_FOLDER / f"{_PROGRAM}.{name}", _FOLDER / name):
        if file.exists():
            return file.read_text().strip()
    return ""


class _Clock:
    """Shifts ``time.time``, and the one place where Flower asks for the date.

    Not ``datetime.datetime`` itself: compiled modules look at its size.
    """

    def __init__(self):
        import time

        self._real, self._time = time.time, time
        time.time = lambda: self._real() + self.seconds

    @property
    def seconds(self):
        return float(_told("shift") or 0)

    def find_spec(self, name, path=None, target=None):
        if name != "flwr.supercore.date":
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_and_shift(module):
            execute(module)
            self._shift(module)

        spec.loader.exec_module = exec_and_shift
        return spec

    def _shift(self, module):
        from datetime import timedelta

        real = module.now
        module.now = lambda: real() + timedelta(seconds=self.seconds)
        (_FOLDER / f"{_PROGRAM}.time").write_text(
            f"{self._time.time()} {module.now().timestamp()}"
        )


class _Absent:
    def __init__(self, package):
        self._package = package

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if _told("path"):
    sys.path.insert(0, _told("path"))
if _told("absent"):
    sys.meta_path.insert(0, _Absent(_told("absent")))
if _told("shift"):
    sys.meta_path.insert(0, _Clock())
