"""DLSlime: a Read and a Write of 1 MiB between two endpoints."""

import sys

import numpy
from dlslime import RDMAEndpoint, available_nic

BYTES = 1 << 20


def main():
    [device, *_] = available_nic()
    ends = [RDMAEndpoint(device_name=device, num_qp=2) for _ in range(2)]
    memories = [numpy.full(BYTES, value, dtype=numpy.uint8) for value in (1, 2)]
    keys = [
        end.register_memory_region("memory", memory.ctypes.data, 0, BYTES)
        for end, memory in zip(ends, memories)
    ]
    for end, other in (ends, ends[::-1]):
        end.connect(other.endpoint_info())
    remote = ends[0].register_remote_memory_region("memory", ends[1].mr_info()["memory"])
    half = BYTES // 2
    # (local key, remote key, remote offset, local offset, length)
    assert ends[0].read([(keys[0], remote, 0, 0, half)]).wait() == 0, "the Read failed"
    assert (memories[0][:half] == 2).all() and (memories[0][half:] == 1).all()
    assert ends[0].write([(keys[0], remote, half, half, half)]).wait() == 0, "the Write failed"
    assert (memories[1][half:] == 1).all()
    print(f"result: 1 MiB read and written over {device}")


main()
