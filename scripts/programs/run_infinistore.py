"""InfiniStore: a server, and a client that stores and fetches 1 MiB by RDMA."""

import asyncio
import socket
import subprocess
import sys
import time


import numpy
import infinistore

BYTES = 1 << 20


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


async def exchange(connection):
    given, got = numpy.full(BYTES, 7, dtype=numpy.uint8), numpy.zeros(BYTES, dtype=numpy.uint8)
    for memory in (given, got):
        connection.register_mr(memory.ctypes.data, BYTES)
    await connection.rdma_write_cache_async([("key", 0)], BYTES, given.ctypes.data)
    await connection.rdma_read_cache_async([("key", 0)], BYTES, got.ctypes.data)
    assert (got == given).all()


def main():
    service, manage = free_port(), free_port()
    # The server protects itself from the OOM killer first, which only root outside of a container may.
    start = "import infinistore.server as server; server.prevent_oom = lambda *_: None; server.main()"
    command = [sys.executable, "-c", start, "--host", "127.0.0.1", "--service-port", str(service)]
    command += ["--manage-port", str(manage), "--dev-name", "kiban0", "--link-type", "Ethernet"]
    command += ["--prealloc-size", "1", "--log-level", "warning"]
    server = subprocess.Popen(command)
    try:
        config = infinistore.ClientConfig(host_addr="127.0.0.1", service_port=service, connection_type="RDMA",
                                          dev_name="kiban0", link_type="Ethernet", log_level="warning")
        end = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", service)) == 0:
                    break
            assert server.poll() is None and time.monotonic() < end, "the server does not listen"
            time.sleep(0.05)
        connection = infinistore.InfinityConnection(config)
        connection.connect()
        asyncio.run(exchange(connection))
        connection.close()
        print("result: 1 MiB stored and fetched")
    finally:
        server.kill()
        server.wait()


main()
