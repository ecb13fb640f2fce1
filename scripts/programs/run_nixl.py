"""NIXL: a Write of 4 MiB between two agents through UCX. Fails if UCX used no RDMA device."""

import os
import subprocess
import sys
import time

BYTES = 4 << 20


def main():
    import numpy
    from nixl_cu12 import nixl_agent, nixl_agent_config

    source, target = (nixl_agent(name, nixl_agent_config(backends=["UCX"])) for name in ("source", "target"))
    given, got = numpy.full(BYTES, 7, dtype=numpy.uint8), numpy.zeros(BYTES, dtype=numpy.uint8)

    def register(agent, memory):
        place = (memory.ctypes.data, memory.nbytes, 0)
        agent.register_memory(agent.get_reg_descs([(*place, "")], "DRAM"))
        return agent.get_xfer_descs([place], "DRAM")

    ours, theirs = register(source, given), register(target, got)
    source.add_remote_agent(target.get_agent_metadata())
    transfer = source.initialize_xfer("WRITE", ours, theirs, "target")
    state, end = source.transfer(transfer), time.monotonic() + 60
    while state == "PROC":
        assert time.monotonic() < end, "the transfer did not end"
        state = source.check_xfer_state(transfer)
    assert state == "DONE" and (got == given).all(), state
    print("4 MiB written")


if sys.argv[1:] == ["agents"]:
    main()
else:
    # UCX names its transports only in its log.
    run = subprocess.run([sys.executable, __file__, "agents"], env={**os.environ, "UCX_LOG_LEVEL": "info"},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode or "4 MiB written" not in run.stdout or "rma(rc_verbs/kiban0:1)" not in run.stdout:
        sys.exit(run.stdout[-4000:])
    print("result: 4 MiB written over rc_verbs/kiban0")
