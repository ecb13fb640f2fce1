"""Communications boards in software, from Python.

kiban.verbs   run programs written for RDMA hardware without the hardware
kiban.ftam    transfer files by FTAM (ISO 8571)
kiban.lab     read the records of `kiban lab`

The fixture `rdma` for pytest is in `kiban.pytest_plugin`, which pytest loads by itself.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from importlib.metadata import version
from pathlib import Path

__all__ = ["__version__", "program"]

__version__: str = version("kiban")


def program() -> str:
    """Returns the path of the program `kiban`: the one that was installed with this package, otherwise one in PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    own = Path(sysconfig.get_path("scripts"), "kiban")
    if own.is_file() and os.access(own, os.X_OK):
        return str(own)
    found = shutil.which("kiban")
    if found is None:
        raise FileNotFoundError(f"the program kiban is neither in {own.parent} nor in PATH; install kiban's wheel, or run make install")
    return found
