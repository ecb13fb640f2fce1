"""Transfer files by FTAM (ISO 8571), OSI's file service.

    from kiban.ftam import Filestore
    store = Filestore("ftam://collector@exchange.example", password="secret")
    for entry in store.list("calls"):
        store.get(f"calls/{entry['name']}", "downloads/", progress=lambda done, total: print(done, total))

Every call runs the program `kiban ftam`, and so establishes an association of its own. Pass several names to one call to
transfer them over one association.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any, List, Literal, Optional, TypedDict, Union
from urllib.parse import quote

from . import program

__all__ = ["Document", "Entry", "Filestore", "FtamError", "Progress", "Transfer"]

#: Called with the bytes that have been transferred and the size of the file, which is None if it is not known.
Progress = Callable[[int, Optional[int]], None]
#: FTAM-3, FTAM-1 and FTAM-2.
Document = Literal["binary", "text", "sequential"]
_Paths = Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]]


class Entry(TypedDict, total=False):
    """A file's attributes; those that the peer does not return are absent (`kiban ftam stat --json`)."""

    name: str
    is_directory: bool
    type: str
    bytes: int
    created: str
    modified: str
    read: str
    creator: str
    modifier: str
    reader: str


#: The result of a transfer. `bytes` includes what earlier attempts transferred; `seconds` excludes connecting.
Transfer = TypedDict("Transfer", {"from": str, "to": str, "bytes": int, "seconds": float, "resumed": bool})


class FtamError(Exception):
    """A command failed.

    Attributes:
        failures: a message for each file, or for the association.
        report: the results of the files that succeeded.
    """

    def __init__(self, failures: List[str], report: dict[str, Any]) -> None:
        super().__init__("; ".join(failures))
        self.failures = failures
        self.report = report


class Filestore:
    """A peer's filestore.

    Args:
        url: `ftam://USER@HOST:PORT`; the default port is 102.
        password: the default is the value of the variable KIBAN_FTAM_PASSWORD.
        options: further options of `kiban ftam`, such as `["--tsel", "0x0103", "--tls"]` (`kiban ftam ls --help`).
    """

    def __init__(self, url: str, *, password: Optional[str] = None, options: Sequence[str] = ()) -> None:
        self._url = url.rstrip("/")
        self._options = list(options)
        self._environment = dict(os.environ)
        if password is not None:
            self._environment["KIBAN_FTAM_PASSWORD"] = password

    def url(self, name: str | os.PathLike[str] = "") -> str:
        """Returns the URL of a file or a directory."""
        return f"{self._url}/{quote(os.fspath(name))}"

    def list(self, directory: str = "", *, recursive: bool = False) -> List[Entry]:
        """Returns the entries of a directory.

        Raises:
            FtamError: the command failed.
        """
        return self._call("ls", [*_flags(recursive=recursive), self.url(directory)])["entries"]

    def stat(self, name: str) -> Entry:
        """Returns a file's attributes.

        Raises:
            FtamError: the command failed.
        """
        return self._call("stat", [self.url(name)])["attributes"]

    def get(
        self,
        names: _Paths,
        local: str | os.PathLike[str],
        *,
        recursive: bool = False,
        resume: bool = False,
        progress: Optional[Progress] = None,
    ) -> List[Transfer]:
        """Downloads one or more files to a directory, or one file to a file name.

        Args:
            resume: continue a transfer that was interrupted.
            progress: called several times a second while a file is transferred.

        Raises:
            FtamError: some files were not transferred; its `report` names the others.
        """
        remotes = [self.url(name) for name in _paths(names)]
        flags = _flags(recursive=recursive, resume=resume)
        return self._call("get", ["--overwrite", *flags, *remotes, os.fspath(local)], progress).get("transfers", [])

    def put(
        self,
        locals: _Paths,
        name: str = "",
        *,
        document: Optional[Document] = None,
        recursive: bool = False,
        resume: bool = False,
        progress: Optional[Progress] = None,
    ) -> List[Transfer]:
        """Uploads one or more files. A `name` that ends with a slash is a directory.

        Args:
            document: the type of the files; the default is that of an existing file, and otherwise binary.
            resume, progress: as for `get`.

        Raises:
            FtamError: some files were not transferred; its `report` names the others.
        """
        flags = _flags(recursive=recursive, resume=resume) + ([] if document is None else ["--type", document])
        paths = [os.fspath(path) for path in _paths(locals)]
        return self._call("put", [*flags, *paths, self.url(name)], progress).get("transfers", [])

    def remove(self, names: _Paths, *, recursive: bool = False) -> None:
        """Deletes files.

        Raises:
            FtamError: some files were not deleted.
        """
        self._call("rm", [*_flags(recursive=recursive), *(self.url(name) for name in _paths(names))])

    def _call(self, verb: str, arguments: List[str], progress: Optional[Progress] = None) -> dict[str, Any]:
        shown = ["--quiet"] if progress is None else ["--progress", "json"]
        command = [program(), "ftam", verb, "--json", *shown, *self._options, *arguments]
        messages = []
        # A file, because nobody reads a pipe while the messages are read.
        with tempfile.TemporaryFile() as output, subprocess.Popen(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
        ) as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    if progress is not None and line.startswith('{"bytes":'):
                        told = json.loads(line)
                        progress(told["bytes"], told["of"])
                    else:
                        messages.append(line.rstrip("\n").removeprefix("kiban: "))
            except BaseException:
                process.terminate()
                raise
            process.wait()
            output.seek(0)
            printed = output.read()
        report: dict[str, Any] = json.loads(printed) if printed else {}
        failures = report.pop("failures", [])
        if process.returncode != 0:
            raise FtamError(failures or messages or [f"kiban ftam {verb}: exit status {process.returncode}"], report)
        return report


def _paths(names: _Paths) -> List[str]:
    if isinstance(names, (str, os.PathLike)):
        return [os.fspath(names)]
    return [os.fspath(name) for name in names]


def _flags(**chosen: bool) -> List[str]:
    return [f"--{name}" for name, is_on in chosen.items() if is_on]
