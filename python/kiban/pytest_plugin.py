"""The fixture `rdma`, which gives a test RDMA devices. pytest loads this plug-in when kiban is installed.

    def test_ping(rdma):
        rdma.popen(["rping", "-s", "-a", rdma.address, "-C", "1"])
        rdma.run(["rping", "-c", "-a", rdma.address, "-C", "1"], check=True, timeout=60)

    @pytest.mark.rdma(transport="roce")
    def test_over_roce(rdma): ...

The option `--rdma-transport` and the setting `rdma_transport` select the transport of tests without that mark.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, Optional, get_args

import pytest

from . import verbs

__all__ = ["Rdma", "rdma"]

#: How long a program has to end after SIGTERM, in seconds.
_GRACE_SECONDS = 10


class Rdma:
    """Starts programs on RDMA devices in software, and ends them after the test."""

    #: An address of this host that has an RDMA device.
    address = "127.0.0.1"

    def __init__(self, transport: Optional[verbs.Transport]) -> None:
        self.transport = transport
        self._environment: Optional[dict[str, str]] = None
        self._started: list[subprocess.Popen[Any]] = []

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for programs that the test starts by other means."""
        if self._environment is None:
            self._environment = verbs.environment(self.transport)
        return dict(self._environment)

    def run(self, arguments: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Runs a program, and waits for it; `options` are those of `subprocess.run`."""
        return verbs.run(arguments, transport=self.transport, **options)

    def popen(self, arguments: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[Any]:
        """Starts a program, which is ended after the test; `options` are those of `subprocess.Popen`."""
        started = verbs.popen(arguments, transport=self.transport, **options)
        self._started.append(started)
        return started

    def close(self) -> None:
        """Ends the programs that are still running."""
        running = [process for process in self._started if process.poll() is None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for process in self._started:
            for stream in process.stdin, process.stdout, process.stderr:
                if stream is not None:
                    stream.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kiban", "RDMA without RDMA hardware")
    transports = get_args(verbs.Transport)
    group.addoption("--rdma-transport", choices=transports, help="transport of the fixture rdma")
    parser.addini("rdma_transport", f"transport of the fixture rdma: {', '.join(transports)}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rdma(transport): the transport of the fixture rdma: ib, roce, efe or iwarp")


@pytest.fixture
def rdma(request: pytest.FixtureRequest) -> Iterator[Rdma]:
    """RDMA devices in software, for programs that the test starts (`kiban.pytest_plugin.Rdma`)."""
    mark = request.node.get_closest_marker("rdma")
    transport = (mark.kwargs.get("transport") if mark else None) or request.config.getoption("rdma_transport")
    transport = transport or request.config.getini("rdma_transport") or None
    if transport is not None and transport not in get_args(verbs.Transport):
        raise pytest.UsageError(f"unknown RDMA transport {transport!r}: ib, roce, efe or iwarp")
    devices = Rdma(transport)
    yield devices
    devices.close()
