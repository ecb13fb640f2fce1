"""Mooncake's transfer engine with its default settings: Writes between two processes.

usage: mooncake.py [rdma|tcp]      prints MB/s for blocks of 64 KiB, 1 MiB and 16 MiB, and checks the data
"""

import subprocess
import sys
import time

import numpy
from mooncake.engine import TransferEngine

BYTES = 16 << 20
SECONDS = 1.5


def engine(protocol, memory):
    made = TransferEngine()
    assert made.initialize("127.0.0.1", "P2PHANDSHAKE", protocol, "") == 0, "no engine"
    assert made.register_memory(memory.ctypes.data, BYTES) == 0, "the memory is not registered"
    return made


def serve(protocol):
    memory = numpy.zeros(BYTES, dtype=numpy.uint8)
    made = engine(protocol, memory)
    print(made.get_rpc_port(), memory.ctypes.data, flush=True)
    sys.stdin.readline()
    print(int(memory.min()), int(memory.max()), flush=True)


def transfer(protocol):
    command = [sys.executable, __file__, protocol, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        port, at = (int(word) for word in target.stdout.readline().split())
        memory = numpy.full(BYTES, 7, dtype=numpy.uint8)
        made = engine(protocol, memory)

        def write(block):
            assert made.transfer_sync_write(f"127.0.0.1:{port}", memory.ctypes.data, at, block) == 0, "a Write failed"

        write(BYTES)
        rates = []
        for block in (64 << 10, 1 << 20, BYTES):
            count, begin = 0, time.monotonic()
            while time.monotonic() < begin + SECONDS:
                write(block)
                count += 1
            rates.append(round(count * block / (time.monotonic() - begin) / 1e6))
        said, _ = target.communicate("\n")
        assert said.split() == ["7", "7"], f"the target has {said}"
    print("result:", protocol, "MB/s of 64 KiB, 1 MiB, 16 MiB:", *rates)


protocol = sys.argv[1] if len(sys.argv) > 1 else "rdma"
if sys.argv[2:] == ["serve"]:
    serve(protocol)
else:
    transfer(protocol)
