"""Run programs written for RDMA hardware (libibverbs, librdmacm) without the hardware.

A program that is started here loads kiban's libraries instead of the system's. They provide an RDMA device in software for
every address of this host. See https://linux.die.net/man/7/rdma_cm for the interface that such programs use.

    import kiban.verbs
    kiban.verbs.run(["ibv_devinfo"], check=True)
    server = kiban.verbs.popen(["rping", "-s", "-a", "127.0.0.1"])
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Optional

from . import program

__all__ = ["Transport", "command", "environment", "popen", "run"]

#: What the devices are, and speak on the wire. `ib`: an InfiniBand adapter on Ethernet, for programs whose both ends use
#: kiban. `roce`: the same, with RoCEv2 on the wire, for peers with rdma_rxe or a RoCE card. `efe`: a device of unspecified
#: transport, with iWARP's messages over the EFE-like transport. `iwarp`: an iWARP device, for peers with siw or an iWARP
#: card.
Transport = Literal["ib", "roce", "efe", "iwarp"]


def command(arguments: Sequence[str | os.PathLike[str]], transport: Optional[Transport] = None) -> list[str]:
    """Returns the command that runs a program on kiban's libraries: `kiban verbs -- PROGRAM ARGUMENT...`.

    Args:
        arguments: the program and its arguments.
        transport: the default is the variable KIBAN_TRANSPORT, and otherwise `ib`.
    """
    chosen = [] if transport is None else ["--transport", transport]
    return [program(), "verbs", *chosen, "--", *map(os.fspath, arguments)]


def run(
    arguments: Sequence[str | os.PathLike[str]], *, transport: Optional[Transport] = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Runs a program, and waits for it. `options` are those of `subprocess.run`, which also describes the exceptions."""
    return subprocess.run(command(arguments, transport), **options)


def popen(
    arguments: Sequence[str | os.PathLike[str]], *, transport: Optional[Transport] = None, **options: Any
) -> subprocess.Popen[Any]:
    """Starts a program. `options` are those of `subprocess.Popen`."""
    return subprocess.Popen(command(arguments, transport), **options)


def environment(
    transport: Optional[Transport] = None, base: Optional[Mapping[str, str]] = None
) -> dict[str, str]:
    """Returns environment variables with which any program loads kiban's libraries, for `subprocess` and the like.

    Args:
        transport: as for `command`.
        base: the variables to start from; the default is `os.environ`.

    Raises:
        subprocess.CalledProcessError: kiban's libraries are not installed; `stderr` has the message.
    """
    printed = subprocess.run(
        command(["env", "-0"], transport),
        env=None if base is None else dict(base),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=True,
    )
    pairs = (os.fsdecode(entry).partition("=") for entry in printed.stdout.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}
