#!/usr/bin/env python3
"""Scores tshark's TCP analysis on captures with known causes, as the tests score `kiban_explain`.

    tshark.py DIR        DIR/CAUSE-SEED.pcap, as captures.py and the simulated tests (KIBAN_EXPLAIN_KEEP) write them

tshark marks packets and gives no verdict on a connection. For the causes that it has a mark for, a connection
counts as found if the mark occurs; odd seeds only, as for the held-out half.
"""
import collections, os, subprocess, sys

FIELDS = ["tcp.analysis.retransmission", "tcp.analysis.fast_retransmission", "tcp.analysis.rto",
          "tcp.analysis.zero_window", "tcp.analysis.window_full", "tcp.analysis.out_of_order"]
# How a mark, or the strongest reading of one, names a cause.
MARKS = {
    "congestion": lambda seen: seen["tcp.analysis.fast_retransmission"] > 0,
    "retransmission_timeout": lambda seen: seen["rto"] > 0,
    "zero_window": lambda seen: seen["tcp.analysis.zero_window"] > 0,
    "receiver_limited": lambda seen: seen["tcp.analysis.window_full"] > 0,
    "healthy": lambda seen: not any(seen.values()),
}


def analyse(file):
    command = ["tshark", "-r", file, "-Y", "tcp.analysis.flags", "-T", "fields"]
    for field in FIELDS:
        command += ["-e", field]
    seen = collections.Counter()
    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
        for field, value in zip(FIELDS, line.split("\t")):
            if value:
                seen[field] += 1
                # The time since the original segment; timers take 200 ms and more.
                seen["rto"] += field == "tcp.analysis.rto" and float(value.split(",")[0]) >= 0.15
    return seen


def main():
    found, right, cases = collections.Counter(), collections.Counter(), collections.Counter()
    for name in sorted(os.listdir(sys.argv[1])):
        cause, _, seed = name.removesuffix(".pcap").partition("-")
        if not name.endswith(".pcap") or int(seed) % 2 == 0:
            continue
        cases[cause] += 1
        seen = analyse(os.path.join(sys.argv[1], name))
        for mark, holds in MARKS.items():
            if holds(seen):
                found[mark] += 1
                right[mark] += mark == cause
    print(f"{'cause':<24} {'cases':>5} {'precision':>9} {'recall':>6}")
    for cause in sorted(cases):
        if cause in MARKS:
            precision = f"{right[cause] / found[cause]:.2f}" if found[cause] else "-"
            print(f"{cause:<24} {cases[cause]:>5} {precision:>9} {right[cause] / cases[cause]:>6.2f}")
        else:
            print(f"{cause:<24} {cases[cause]:>5} {'no mark':>9}")


main()
