"""Mooncake's own benchmark (transfer_engine_bench) with its default settings, over its TCP and over RDMA, alternating.

usage: run_mooncake_bench.py KIBAN      prints GB/s and the ratio to its TCP, alone and beside two busy loops

The benchmark's initiator has 12 threads that write blocks of 64 KiB to the target. Each figure is the median of three runs.
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys

import mooncake

BENCH = pathlib.Path(mooncake.__file__).parent / "transfer_engine_bench"
COMMON = [str(BENCH), "--metadata_server=P2PHANDSHAKE", "--auto_discovery=true", "--local_server_name=127.0.0.1"]
ROUNDS = 3
SECONDS = 4
TCP = "Mooncake's TCP"
# Name: protocol, setting of KIBAN_SHARED_MEMORY; the ratio to TCP that is wanted alone, and beside busy loops.
WAYS = {TCP: ("tcp", "", 0, 0), "shared memory": ("rdma", "1", 2.0, 1.0), "sockets": ("rdma", "0", 1.0, 1.0)}


def rate(kiban, protocol, shared):
    """Returns the throughput in GB/s that the initiator prints."""
    start = [kiban, "verbs", "--"] if protocol == "rdma" else []
    environment = dict(os.environ, GLOG_logtostderr="1", GLOG_minloglevel="0", KIBAN_SHARED_MEMORY=shared or "1")
    target = [*start, *COMMON, "--mode=target", f"--protocol={protocol}"]
    with subprocess.Popen(target, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as serving:
        try:
            for line in serving.stderr:
                if found := re.search(r"listening on (\S+:\d+)", line):
                    break
            else:
                raise SystemExit("the target ended before it printed its port")
            # The target goes on logging; cat keeps its pipe empty.
            with subprocess.Popen(["cat"], stdin=serving.stderr, stdout=subprocess.DEVNULL):
                made = subprocess.run(
                    [*start, *COMMON, "--mode=initiator", f"--protocol={protocol}", f"--segment_id={found[1]}", f"--duration={SECONDS}"],
                    env=environment, capture_output=True, text=True, timeout=90, check=False,
                )
                serving.kill()
        finally:
            serving.kill()
    if not (found := re.search(r"throughput ([\d.]+) GB/s", made.stderr)) or made.returncode:
        raise SystemExit(f"no throughput:\n{made.stderr[-2000:]}")
    return float(found[1])


def compare(kiban, title, wanted):
    rates = {name: [] for name in WAYS}
    for _ in range(ROUNDS):
        for name, (protocol, shared, *_) in WAYS.items():
            rates[name].append(rate(kiban, protocol, shared))
    for name, way in WAYS.items():
        median = statistics.median(rates[name])
        line = f"{title}, {name}: {median:.2f} GB/s ({min(rates[name]):.2f} to {max(rates[name]):.2f})"
        if way[wanted]:
            ratio = median / statistics.median(rates[TCP])
            line += f", {ratio:.2f} times Mooncake's TCP (target {way[wanted]}: {'met' if ratio >= way[wanted] else 'MISSED'})"
        print("result:", line)


def main(kiban):
    compare(kiban, "alone", 2)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        compare(kiban, "beside two busy loops", 3)
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()


main(sys.argv[1])
