#!/usr/bin/env python3
"""Captures TCP connections of the Linux kernel whose causes of slowness are known.

    captures.py DIR EACH [CAUSE,... [FIRST,...]]    EACH connections per cause and first seed, which is 0 and an odd
                                                    one unless it is given, into DIR/CAUSE-SEED.pcap

Each connection has two network namespaces with a TUN device each. This program carries the packets between
them, with a rate, a queue, a delay and losses of its own (the kernel's netem is not available everywhere), and
records them where they enter and leave the path. Workers, with two namespaces each, make connections at the same
time; a connection waits most of the time, and a worker takes less than a thirtieth of a processor. They run at a
real-time priority, because builds beside them stall processes of any nice value for a second and more. Needs root.
`cargo test -p kiban-explain --test kernel` compares the verdicts on the captures with the causes in their names.
"""
import ctypes, fcntl, heapq, math, os, random, select, signal, socket, struct, subprocess, sys, time

LIBC = ctypes.CDLL(None, use_errno=True)
MBIT = 1_000_000
WORKERS = 8
# The first seeds: even ones, with which the rules were written, and odd ones, which were held out.
SEEDS = [0, 31001]
CAUSES = ["healthy", "nagle_delayed_ack", "receiver_limited", "sender_limited", "congestion",
          "retransmission_timeout", "slow_reader", "small_mss", "lost_window_scaling", "policing", "bufferbloat",
          "think_time", "silly_window", "path_full"]


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Namespace:
    """A network namespace with a TUN device, whose packets this program reads and writes."""

    def __init__(self, name, address, sysctls, mtu=1500):
        self.name, self.device = name, name
        run("ip", "netns", "add", name)
        self.fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        # TUNSETIFF: IFF_TUN | IFF_NO_PI.
        fcntl.ioctl(self.fd, 0x400454CA, struct.pack("16sH22x", self.device.encode(), 0x1001))
        run("ip", "link", "set", self.device, "netns", name)
        self.ip("addr", "add", f"{address}/24", "dev", self.device)
        self.ip("link", "set", self.device, "up", "mtu", str(mtu), "txqueuelen", "10000")
        run("ip", "netns", "exec", name, "sysctl", "-q", "-w",
            *[f"net.ipv4.{key}={value}" for key, value in sysctls.items()])

    def ip(self, *arguments):
        run("ip", "-n", self.name, *arguments)

    def enter(self):
        fd = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        if LIBC.setns(fd, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(fd)

    def remove(self):
        os.close(self.fd)
        run("ip", "netns", "del", self.name)


class Path:
    """One direction between the namespaces: middlebox, queue and rate, delay, losses."""

    def __init__(self, rate, delay, packets_max=1000, loss=0.0, middlebox=None, rng=None):
        self.rate, self.delay, self.packets_max, self.loss = rate, delay, packets_max, loss
        self.middlebox, self.rng = middlebox, rng
        self.free_at, self.waiting = 0.0, []

    def admit(self, packet, now):
        """Returns the packet and when it arrives, or None if it is lost."""
        if self.middlebox:
            packet = self.middlebox(packet, now)
            if packet is None:
                return None
        while self.waiting and self.waiting[0] <= now:
            self.waiting.pop(0)
        if len(self.waiting) > self.packets_max:
            return None
        begin = max(now, self.free_at)
        self.free_at = begin + len(packet) * 8 / self.rate
        self.waiting.append(begin)
        if self.loss and self.rng.random() < self.loss:
            return None
        return packet, self.free_at + self.delay


def relay(ends, paths, stop, deadline):
    """Carries packets until the processes end. Returns what entered and what left, per direction."""
    entered, left = ([], []), ([], [])
    heap, count, quiet_since = [], 0, None
    while time.monotonic() < deadline:
        now = time.monotonic()
        while heap and heap[0][0] <= now:
            _, _, side, packet = heapq.heappop(heap)
            left[side].append((time.time_ns(), packet))
            try:
                os.write(ends[1 - side].fd, packet)
            except OSError:
                pass
        if stop():
            quiet_since = quiet_since or now
            if now - quiet_since > 0.3:
                break
        timeout = min(heap[0][0] - now if heap else 0.05, 0.05)
        ready, _, _ = select.select([end.fd for end in ends], [], [], max(timeout, 0))
        for side, end in enumerate(ends):
            if end.fd not in ready:
                continue
            for _ in range(32):
                try:
                    packet = os.read(end.fd, 65536)
                except BlockingIOError:
                    break
                if packet[0] >> 4 != 4 or packet[9] != 6:
                    continue
                now = time.monotonic()
                entered[side].append((time.time_ns(), packet))
                admitted = paths[side].admit(packet, now)
                if admitted:
                    count += 1
                    heapq.heappush(heap, (admitted[1], count, side, admitted[0]))
    return entered, left


def policer(rate, burst):
    state = {"tokens": burst, "at": 0.0}

    def middlebox(packet, now):
        state["tokens"] = min(burst, state["tokens"] + (now - state["at"]) * rate / 8)
        state["at"] = now
        if state["tokens"] < len(packet):
            return None
        state["tokens"] -= len(packet)
        return packet
    return middlebox


def outages(first, period, length):
    state = {}

    def middlebox(packet, now):
        begin = state.setdefault("begin", now + first)
        if now >= begin + length:
            state["begin"] = now + period
        return None if begin <= now < begin + length else packet
    return middlebox


def one_loss(victim):
    state = {"met": 0}

    def middlebox(packet, _):
        state["met"] += len(packet) > 1000
        return None if state["met"] == victim and len(packet) > 1000 else packet
    return middlebox


def remove_window_scale(packet, _):
    """Replaces the window scale option of a SYN by padding, as some firewalls do."""
    head = (packet[0] & 15) * 4
    if not packet[head + 13] & 2:
        return packet
    bytes_ = bytearray(packet)
    place = bytes_.find(b"\x03\x03", head + 20)
    if place > 0:
        bytes_[place:place + 3] = b"\x01\x01\x01"
        bytes_[head + 16:head + 18] = b"\0\0"
        segment = bytes_[head:]
        pseudo = bytes_[12:20] + struct.pack("!HH", 6, len(segment)) + segment + b"\0" * (len(segment) % 2)
        total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
        while total >> 16:
            total = (total & 0xffff) + (total >> 16)
        struct.pack_into("!H", bytes_, head + 16, ~total & 0xffff)
    return bytes(bytes_)


class Case:
    """The parameters of a connection. The sender of the data is in the first namespace."""

    def __init__(self, cause, seed):
        self.rng = rng = random.Random(seed * 64 + CAUSES.index(cause))
        self.at = ["sender", "middle", "receiver"][seed // 2 % 3]
        self.sender_opens = rng.random() < 0.5
        self.rate = self.number(4 * MBIT, 40 * MBIT)
        self.delay = self.number(2, 40) / 1000
        self.there, self.back = {}, {}
        self.congestion_control = rng.choice([b"cubic", b"cubic", b"reno"])
        stamps = rng.choice(["1", "1", "0"])
        self.sysctls = [{"tcp_timestamps": stamps} for _ in range(2)]
        self.mtu = 1500
        self.sndbuf = self.rcvbuf = self.maxseg = None
        self.no_delay = False
        # Bytes per second.
        self.pace = None
        # How long the client waits between exchanges.
        self.idle = 0
        # What is written, and how it is read.
        self.job, self.reading = ("bulk", 0), ("at_once",)
        product = self.rate / 8 * self.delay * 2
        # A window a little above the product, as a tuned buffer gives it; the kernel doubles SO_RCVBUF and
        # keeps half for its own overhead.
        self.rcvbuf = int(max(product * 1.25, 32768))
        getattr(self, cause)(rng, product)

    def number(self, low, high):
        return math.exp(self.rng.uniform(math.log(low), math.log(high)))

    def bulk(self, seconds):
        self.job = ("bulk", int(min(max(self.rate / 8 * seconds, 60_000), 6_000_000)))

    def exchange(self, count, writes, answer, think=0):
        self.job, self.reading = ("exchange", count, writes), ("answering", sum(writes), answer, think)

    def healthy(self, rng, _):
        self.bulk(1.0 + self.delay * 16)
        kind = rng.randrange(8)
        if kind == 0:
            self.job = ("bulk", int(self.number(3000, 200_000)))
        elif kind == 1:
            self.rcvbuf = None
            self.exchange(30, [int(self.number(50, 20_000))], int(self.number(1, 1400)))
        elif kind == 2:
            self.no_delay, self.rcvbuf = True, None
            self.exchange(30, [int(self.number(10, 200)), int(self.number(50, 1200))], 100)
        elif kind == 3:
            self.there["middlebox"] = one_loss(rng.randrange(100, 200))
        elif kind == 4:
            # A steady rate without a queue, and a window that is not the limit.
            self.delay, self.rcvbuf, self.pace = max(self.delay, 0.01), None, int(self.rate / 16)
        elif kind == 5:
            # The client waits between exchanges, not the server within them.
            self.sender_opens, self.rcvbuf = True, None
            self.idle = self.delay * 2 + self.number(30, 1000) / 1000
            self.exchange(10, [int(self.number(50, 5000))], int(self.number(1, 20_000)))
        elif kind == 6:
            # A window without room for a full segment, and messages that are smaller still.
            self.rcvbuf, self.no_delay = rng.randrange(1152, 1440), True
            self.exchange(30, [int(self.number(10, 500))], int(self.number(1, 1400)))

    def nagle_delayed_ack(self, rng, _):
        self.delay, self.rcvbuf = self.number(0.1, 15) / 1000, None
        writes = rng.choice([[int(self.number(10, 200)), int(self.number(50, 1300))],
                             [20, int(self.number(20, 400)), int(self.number(20, 400))]])
        self.exchange(40, writes, int(self.number(1, 500)))

    def receiver_limited(self, rng, product):
        self.delay = max(self.delay, 0.01)
        product = self.rate / 8 * self.delay * 2
        self.rcvbuf = int(max(product / rng.uniform(3, 8), 4500))
        self.bulk(0)
        self.job = ("bulk", self.rcvbuf * rng.randrange(20, 50))

    def sender_limited(self, rng, _):
        size = int(self.number(2000, 100_000))
        pause = self.delay * 4 + size * 8 / self.rate * 3 + self.number(10, 200) / 1000
        self.job = ("paused", rng.randrange(12, 30), size, pause)

    def congestion(self, rng, _):
        # A link that TCP would fill to a fifth up to a half with these losses: 1.22 segments per round trip and
        # square root of the share of losses (Mathis et al., "The Macroscopic Behavior of TCP").
        loss, self.delay = rng.uniform(0.006, 0.023), self.number(10, 40) / 1000
        likely = 1.22 * 1448 * 8 / (2 * self.delay * math.sqrt(loss))
        self.rate = likely / rng.uniform(0.2, 0.5)
        product = self.rate / 8 * self.delay * 2
        self.rcvbuf = int(product * 4) + 65536
        if rng.random() < 0.75:
            # A queue of at most a round trip: it does not bloat if losses happen to be rare.
            self.there = {"loss": loss, "packets_max": int(max(product / 1500, 10))}
        else:
            # A queue of a few segments, which the first flight fills.
            self.there["packets_max"] = rng.randrange(4, 9)
        # So long that losses are not rare by chance.
        self.job = ("bulk", int(max(likely / 8 * 4, 20 / loss * 1448)))

    def retransmission_timeout(self, rng, _):
        if rng.random() < 0.5:
            self.there["middlebox"] = outages(0.4, rng.uniform(0.7, 1.5) + self.delay * 8, 0.25 + self.delay * 6)
            self.bulk(4.0)
            if rng.random() < 0.33:
                self.sysctls[0]["tcp_sack"] = "0"
        else:
            self.delay, self.rcvbuf, self.no_delay = min(self.delay, 0.012), None, True
            self.there["loss"] = rng.uniform(0.06, 0.16)
            self.exchange(60, [int(self.number(50, 1300))], int(self.number(1, 1000)))

    def slow_reader(self, rng, _):
        self.rcvbuf = int(self.number(16384, 131072))
        size = int(min(self.rcvbuf / rng.randrange(1, 4), 60_000))
        pause = self.delay * 4 + self.rcvbuf * 8 / self.rate + self.number(50, 500) / 1000
        self.reading = ("slowly", size, pause)
        self.job = ("bulk", self.rcvbuf * 2 + size * 10)

    def think_time(self, rng, _):
        self.sender_opens, self.rcvbuf = True, None
        answer = int(self.number(1, 50_000))
        think = self.delay * 4 + answer * 8 / self.rate * 2 + self.number(30, 1500) / 1000
        self.exchange(1 + rng.randrange(min(20, int(15 / think))), [int(self.number(50, 5000))], answer, think)

    def silly_window(self, rng, _):
        # The window has no room for a full segment, whose size may be that of jumbo frames. Linux avoids silly
        # windows otherwise (RFC 9293 3.8.6.2.2): it opens a window by a full segment, or half of the buffer.
        self.mtu = rng.choice([1500, 9000])
        self.rcvbuf = int(self.number(1152, self.mtu / 4 if self.mtu > 1500 else 1440))
        if rng.random() < 0.7:
            self.reading = ("slowly", self.rcvbuf // rng.randrange(4, 20), self.number(1, 30) / 1000)
        self.job = ("bulk", self.rcvbuf * rng.randrange(20, 40))

    def path_full(self, rng, _):
        # A queue between half and all of what the path holds keeps the link busy in spite of losses.
        self.rate, self.delay = min(self.rate, 20 * MBIT), max(self.delay, 0.005)
        product = self.rate / 8 * self.delay * 2
        self.there["packets_max"] = int(max(product / 1500 * rng.uniform(0.5, 1), 10))
        self.rcvbuf = int(product * 4) + 65536
        self.job = ("bulk", int(self.rate / 8 * 6))

    def small_mss(self, rng, _):
        mss = int(self.number(100, 900))
        if mss > 600 and rng.random() < 0.5:
            self.mtu = mss + 52
        else:
            self.maxseg = mss
        self.rate = min(self.rate, mss * 8 * 4000)
        self.rcvbuf = int(max(self.rate / 8 * self.delay * 4, 16384))
        self.job = ("bulk", mss * 2500)

    def lost_window_scaling(self, rng, _):
        self.rate, self.delay = 40 * MBIT, self.number(25, 70) / 1000
        self.rcvbuf = 1_000_000
        kind = rng.randrange(3)
        if kind < 2:
            self.sysctls[kind]["tcp_window_scaling"] = "0"
        else:
            self.sender_opens, self.back["middlebox"] = True, remove_window_scale
        self.job = ("bulk", 65535 * rng.randrange(12, 25))
        if kind == 2:
            self.job = ("bulk", 600_000)

    def policing(self, rng, _):
        rate, burst = self.number(2 * MBIT, 15 * MBIT), self.number(20_000, 150_000)
        self.rate, self.delay, self.rcvbuf = 80 * MBIT, self.number(4, 40) / 1000, None
        self.there["middlebox"] = policer(rate, burst)
        self.job = ("bulk", int(rate / 8 * rng.uniform(3, 5)))

    def bufferbloat(self, rng, _):
        self.rate = self.number(MBIT, 12 * MBIT)
        queue = self.rate / 8 * (0.25 + self.delay * 6 + rng.random() * 0.6)
        # The window fills the queue, or it makes it overflow.
        if rng.random() < 0.25:
            self.there["packets_max"], self.rcvbuf = 5000, int(queue)
        else:
            self.there["packets_max"], self.rcvbuf = int(queue / 1500), int(queue * 4)
        self.job = ("bulk", int(self.rate / 8 * 15))


def send(connection, case):
    if case.no_delay:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    kind, *rest = case.job
    if kind == "bulk":
        connection.sendall(bytes(rest[0]))
    elif kind == "paused":
        count, size, pause = rest
        for _ in range(count):
            time.sleep(pause * (1 + case.rng.random() / 2))
            connection.sendall(bytes(size))
    else:
        count, writes = rest
        for _ in range(count):
            time.sleep(case.idle)
            for size in writes:
                connection.sendall(bytes(size))
            need = case.reading[2]
            while need > 0:
                got = len(connection.recv(need))
                if got == 0:
                    return
                need -= got
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)


def receive(connection, case):
    kind, *rest = case.reading
    received = 0
    while True:
        if kind == "slowly":
            time.sleep(rest[1])
        data = connection.recv(rest[0] if kind == "slowly" else 65536)
        if not data:
            return
        before = received
        received += len(data)
        if kind == "answering":
            for _ in range(received // rest[0] - before // rest[0]):
                time.sleep(rest[2])
                connection.sendall(bytes(rest[1]))


def spawn(namespace, opens, address, work, case):
    """Runs one end in a process in its namespace; returns once it listens, if it does not open the connection."""
    ready, listening = os.pipe()
    pid = os.fork()
    os.close(listening if pid else ready)
    if pid:
        # Ends when the other process closes it, whatever happens there.
        if not opens:
            os.read(ready, 1)
        os.close(ready)
        return pid
    try:
        signal.alarm(60)
        namespace.enter()
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if work is receive and case.rcvbuf:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUFFORCE if hasattr(socket, "SO_RCVBUFFORCE") else 33,
                           case.rcvbuf)
        if work is send and case.pace:
            # SO_MAX_PACING_RATE
            end.setsockopt(socket.SOL_SOCKET, 47, case.pace)
        if work is send and case.maxseg:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, case.maxseg)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, case.congestion_control)
        if opens:
            end.connect((address, 80))
            connection = end
        else:
            end.bind(("0.0.0.0", 80))
            end.listen(1)
            os.close(listening)
            connection, _ = end.accept()
        work(connection, case)
        connection.close()
    except OSError:
        pass
    os._exit(0)


def write(file, packets):
    with open(file + ".part", "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 101))
        for at, packet in packets:
            # Headers suffice.
            head = (packet[0] & 15) * 4
            kept = packet[:head + (packet[head + 12] >> 4) * 4]
            out.write(struct.pack("<IIII", at // 10**9, at % 10**9, len(kept), len(packet)) + kept)
    os.rename(file + ".part", file)


def is_full(packets, rate):
    """Returns whether a link of this rate was busy for nine tenths of the time."""
    times = [at for at, _ in packets]
    bits = sum(len(packet) for _, packet in packets) * 8
    return bool(times) and bits >= 0.9 * rate * (max(times) - min(times)) / 1e9


# Of connections with losses, only the link shows which of these causes they have.
WITH_LOSSES = ["congestion", "path_full"]


def capture(directory, cause, seed, worker):
    causes = WITH_LOSSES if cause in WITH_LOSSES else [cause]
    if any(os.path.exists(f"{directory}/{one}-{seed}.pcap") for one in causes):
        return
    case = Case(cause, seed)
    addresses = ["10.99.0.1", "10.99.0.2"]
    ends = [Namespace(f"kx{worker}{side}", address, sysctls, case.mtu)
            for side, address, sysctls in zip("ab", addresses, case.sysctls)]
    try:
        paths = [Path(case.rate, case.delay, rng=case.rng, **options) for options in (case.there, case.back)]
        workers = [send, receive]
        order = [1, 0] if case.sender_opens else [0, 1]
        pids = []
        for side in order:
            opens = case.sender_opens == (side == 0)
            pids.append(spawn(ends[side], opens, addresses[1 - side], workers[side], case))

        def ended():
            for pid in list(pids):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    pids.remove(pid)
            return not pids
        entered, left = relay(ends, paths, ended, time.monotonic() + 45)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    finally:
        for end in ends:
            end.remove()
    early = int(case.delay / 2 * 1e9)
    packets = {
        "sender": entered[0] + left[1],
        "receiver": left[0] + entered[1],
        "middle": [(at - early, packet) for side in (0, 1) for at, packet in left[side]],
    }[case.at]
    packets.sort(key=lambda packet: packet[0])
    if cause in WITH_LOSSES:
        cause = "path_full" if is_full(left[0], case.rate) else "congestion"
    if packets:
        write(f"{directory}/{cause}-{seed}.pcap", packets)


def main():
    directory, each = sys.argv[1], int(sys.argv[2])
    wanted = sys.argv[3].split(",") if len(sys.argv) > 3 else CAUSES
    seeds = [int(first) for first in sys.argv[4].split(",")] if len(sys.argv) > 4 else SEEDS
    os.makedirs(directory, exist_ok=True)
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    # Half as many healthy connections as others: a third of all.
    todo = []
    for number in range(each):
        for first in seeds:
            # The label of a connection with losses is not known before, so these have seeds of their own.
            todo += [(cause, first + 2 * number + 1000 * (cause == "path_full"))
                     for cause in CAUSES if cause != "healthy"]
            todo += [("healthy", one) for one in range(first + 12 * number, first + 12 * number + 12, 2)]
    pids = []
    todo = [one for one in todo if one[0] in wanted]
    for worker in range(WORKERS):
        pid = os.fork()
        if pid == 0:
            for cause, seed in todo[worker::WORKERS]:
                capture(directory, cause, seed, worker)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


main()
