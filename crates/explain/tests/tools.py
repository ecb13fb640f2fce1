#!/usr/bin/env python3
"""Scores what tshark and tcptrace show of captures with known causes, as the tests score `kiban_explain`.

    tools.py tshark|tcptrace DIR        DIR/CAUSE-SEED.pcap, as captures.py and KIBAN_EXPLAIN_KEEP write them

tshark marks packets and tcptrace counts them; neither gives a verdict on a connection. For the causes that a tool
shows something of, a connection counts as found if that occurs; odd seeds only, as for the held-out half.
"""
import collections, concurrent.futures, csv, os, re, subprocess, sys

FIELDS = ["tcp.analysis.retransmission", "tcp.analysis.fast_retransmission", "tcp.analysis.rto",
          "tcp.analysis.zero_window", "tcp.analysis.window_full", "tcp.analysis.out_of_order"]
# How a mark, or the strongest reading of one, names a cause.
TSHARK = {
    "congestion": lambda seen: seen["tcp.analysis.fast_retransmission"] > 0,
    "retransmission_timeout": lambda seen: seen["rto"] > 0,
    "slow_reader": lambda seen: seen["tcp.analysis.zero_window"] > 0,
    "receiver_limited": lambda seen: seen["tcp.analysis.window_full"] > 0,
    "healthy": lambda seen: not any(seen.values()),
}


def tshark(file):
    command = ["tshark", "-n", "-r", file, "-Y", "tcp.analysis.flags", "-T", "fields"]
    for field in FIELDS:
        command += ["-e", field]
    seen = collections.Counter()
    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
        for field, value in zip(FIELDS, line.split("\t")):
            if value:
                seen[field] += 1
                # The time since the original segment; timers take 200 ms and more.
                seen["rto"] += field == "tcp.analysis.rto" and float(value.split(",")[0]) >= 0.15
    return [seen]


def is_bloated(seen):
    """kiban's threshold, with tcptrace's mean round trip."""
    return seen["RTT_avg"] >= 3 * seen["RTT_min"] and seen["RTT_avg"] >= seen["RTT_min"] + 80


# The same for the statistics of a direction; the window is the other direction's.
TCPTRACE = {
    "congestion": lambda seen: seen["triple_dupacks"] > 0 or seen["outoforder_pkts"] > 0,
    "retransmission_timeout": lambda seen: seen["max_retr_time"] >= 150,
    "slow_reader": lambda seen: seen["zwnd_probe_pkts"] > 0 or seen["peer_zero_win_adv"] > 0,
    "receiver_limited": lambda seen: seen["max_owin"] + seen["max_segm_size"] > seen["peer_max_win_adv"] > 0,
    "small_mss": lambda seen: 0 < seen["max_segm_size"] < 1000 and seen["avg_segm_size"] * 1.05 > seen["max_segm_size"]
                              and seen["actual_data_pkts"] >= 20,
    "bufferbloat": is_bloated,
    "healthy": lambda seen: not any(seen[name] for name in ["rexmt_data_pkts", "outoforder_pkts", "zwnd_probe_pkts",
                                                            "peer_zero_win_adv", "triple_dupacks"]),
}


def number(text):
    try:
        return float(text)
    except ValueError:
        return 0


def tcptrace(file):
    """Returns the statistics of each direction, and those of the other one with the prefix peer_."""
    command = ["tcptrace", "--csv", "-l", "-r", "-W", "-n", file]
    lines = subprocess.run(command, capture_output=True, text=True, errors="replace").stdout.splitlines()
    rows = list(csv.reader(line for line in lines if line.strip() and not line.startswith("#")))
    if len(rows) < 2:
        return []
    values = {name.strip().replace(" ", "_"): number(value) for name, value in zip(rows[0], rows[1])}
    directions = []
    for own, peer in ["a2b", "b2a"], ["b2a", "a2b"]:
        seen = collections.Counter()
        for name, value in values.items():
            for end, prefix in (own, ""), (peer, "peer_"):
                if name.endswith("_" + end):
                    seen[prefix + name.removesuffix("_" + end)] = value
        directions.append(seen)
    return directions


TOOLS = {"tshark": (tshark, TSHARK), "tcptrace": (tcptrace, TCPTRACE)}


def main():
    (analyse, marks), directory = TOOLS[sys.argv[1]], sys.argv[2]
    found, right, cases = collections.Counter(), collections.Counter(), collections.Counter()
    names = [name for name in sorted(os.listdir(directory)) if re.fullmatch(r"[a-z_]+-[0-9]*[13579]\.pcap", name)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        analysed = pool.map(analyse, [os.path.join(directory, name) for name in names])
    for name, directions in zip(names, analysed):
        cause = name.partition("-")[0]
        cases[cause] += 1
        for mark, holds in marks.items():
            # A connection is healthy if both directions are.
            if (all if mark == "healthy" else any)(holds(seen) for seen in directions):
                found[mark] += 1
                right[mark] += mark == cause
    print(f"{'cause':<24} {'cases':>5} {'precision':>9} {'recall':>6}")
    for cause in sorted(cases):
        if cause in marks:
            precision = f"{right[cause] / found[cause]:.2f}" if found[cause] else "-"
            print(f"{cause:<24} {cases[cause]:>5} {precision:>9} {right[cause] / cases[cause]:>6.2f}")
        else:
            print(f"{cause:<24} {cases[cause]:>5} {'no mark':>9}")


main()
