"""A hostile guest of `kiban net`: sends frames that no kernel sends.

usage: hostile.py COUNT SEED    sends COUNT frames of each kind in turn (of flows ten times as many, at most
                                100,000), and prints the kind before

The guest's own address is 10.0.2.15 and fd6b:6962:616e::15. Port 8004 of 192.0.2.1 is closed; port 8003 is open;
a server at port 8005 reads nothing.
"""

import itertools
import random
import socket
import struct
import sys

OWN, GATEWAY, HOST = "10.0.2.15", "10.0.2.2", "192.0.2.1"
OWN6, GATEWAY6, HOST6 = "fd6b:6962:616e::15", "fd6b:6962:616e::2", "fd00:1::1"
OPEN, CLOSED, HELD = 8003, 8004, 8005
IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
TCP, UDP, ICMP, ICMPV6, FRAGMENT = 6, 17, 1, 58, 44
SYN, RST, ACK = 2, 4, 16

rng = random.Random(int(sys.argv[2]))
count = int(sys.argv[1])
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
own_mac = link.getsockname()[4]


def gateway_mac():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        while True:
            probe.sendto(b"", (GATEWAY, 9))
            for line in open("/proc/net/arp").readlines()[1:]:
                words = line.split()
                if words[0] == GATEWAY and words[3] != "00:00:00:00:00:00":
                    return bytes.fromhex(words[3].replace(":", ""))


gateway = gateway_mac()


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def address(text):
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


def ethernet(kind, packet, source=own_mac, target=gateway):
    return target + source + struct.pack(">H", kind) + packet


def ipv4(protocol, payload, source, target=address(HOST), offset=0, number=0):
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), number, offset, 64, protocol, 0) + source + target
    header = header[:10] + struct.pack(">H", checksum(header)) + header[12:]
    return ethernet(IPV4, header + payload)


def ipv6(protocol, payload, source=address(OWN6), target=address(HOST6)):
    return ethernet(IPV6, struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + source + target + payload)


def pseudo(source, target, protocol, payload):
    return source + target + struct.pack(">II" if len(source) == 16 else ">HH", protocol, len(payload))


def summed(payload, at, source, target, protocol):
    total = checksum(pseudo(source, target, protocol, payload) + payload)
    return payload[:at] + struct.pack(">H", total) + payload[at + 2 :]


def tcp(source, source_port, port, flags, payload=b"", options=b"", target=address(HOST)):
    offset = (5 + len(options) // 4) << 12 | flags
    segment = struct.pack(">HHIIHHHH", source_port, port, rng.getrandbits(32), 0, offset, 65535, 0, 0)
    return summed(segment + options + payload, 16, source, target, TCP)


def udp(source, source_port, port, payload, target=address(HOST)):
    return summed(struct.pack(">HHHH", source_port, port, 8 + len(payload), 0) + payload, 6, source, target, UDP)


def neighbour():
    """An address in the guest's network other than the gateway's."""
    return bytes([10, 0, 2, rng.choice([15, *range(16, 255)])])


def flood_of_syns():
    """Every SYN is a connection of its own, half of them from addresses that never answer."""
    for at in itertools.count():
        source = neighbour() if at % 2 else address(OWN)
        # Few reach an open port: the server is no target of this guest.
        port = OPEN if at % 50 == 1 else CLOSED
        yield ipv4(TCP, tcp(source, rng.randrange(1, 65536), port, SYN), source)


def flows_of_datagrams():
    """100,000 pairs of addresses and ports, to targets on the host and beyond."""
    for at in itertools.count():
        target = bytes([192, 0, 2, 1 if at % 2 else rng.randrange(2, 255)])
        yield ipv4(UDP, udp(address(OWN), at % 65535 + 1, rng.randrange(1, 65536), b"x", target), address(OWN), target)


def fragments():
    """Datagrams that are never complete, or whose fragments overlap or end beyond 65,535 bytes."""
    for at in itertools.count():
        offset = rng.choice([0, 1, 100, 8191]) | rng.choice([0, 0x2000])
        yield ipv4(UDP, rng.randbytes(rng.choice([8, 512, 1400])), neighbour(), offset=offset, number=at & 0xFFFF)
        header = struct.pack(">BBHI", UDP, 0, rng.choice([0, 1, 0xFFF8, 0x100]), at)
        yield ipv6(FRAGMENT, header + rng.randbytes(64))


def neighbours():
    """ARP and neighbour discovery for addresses without end, and claims to be the gateway."""
    broadcast = b"\xff" * 6
    for at in itertools.count():
        mac = b"\x02" + rng.randbytes(5)
        claimed = address(GATEWAY) if at % 100 == 0 else neighbour()
        operation = rng.choice([1, 2])
        body = struct.pack(">HHBBH", 1, IPV4, 6, 4, operation) + mac + claimed + bytes(6) + address(GATEWAY)
        yield ethernet(ARP, body, mac, broadcast)
        claimed = address("fd6b:6962:616e::")[:8] + rng.randbytes(8)
        kind, option = rng.choice([(135, 1), (136, 2)])
        body = struct.pack(">BBHI", kind, 0, 0, 0x60000000 if kind == 136 else 0) + address(GATEWAY6)
        body += struct.pack(">BB", option, 1) + mac
        body = summed(body, 2, claimed, address(GATEWAY6), ICMPV6)
        yield ethernet(IPV6, struct.pack(">IHBB", 6 << 28, len(body), ICMPV6, 255) + claimed + address(GATEWAY6) + body, mac)


def pings():
    """Echo requests with ever new identifiers."""
    for at in itertools.count():
        message = struct.pack(">BBHHH", 8, 0, 0, at & 0xFFFF, 1) + rng.randbytes(16)
        message = message[:2] + struct.pack(">H", checksum(message)) + message[4:]
        yield ipv4(ICMP, message, address(OWN))


def malformed():
    """Valid packets of all kinds with bytes changed, cut off or appended, and noise."""
    kinds = [flood_of_syns(), flows_of_datagrams(), fragments(), neighbours(), pings()]
    while True:
        frame = bytearray(next(rng.choice(kinds)))
        for _ in range(rng.randrange(1, 5)):
            frame[rng.randrange(len(frame))] = rng.getrandbits(8)
        match rng.randrange(4):
            case 0:
                frame = frame[: rng.randrange(14, len(frame) + 1)]
            case 1:
                frame += rng.randbytes(rng.randrange(1, 1400))
            case 2:
                frame[14:] = rng.randbytes(rng.randrange(1, 200))
        yield bytes(frame)


for kind in flood_of_syns, flows_of_datagrams, fragments, neighbours, pings, malformed:
    print(kind.__name__, flush=True)
    frames = min(10 * count, 100_000) if kind in (flood_of_syns, flows_of_datagrams) else count
    for frame in itertools.islice(kind(), frames):
        try:
            link.send(frame)
        except OSError:
            # The device's queue is full, or the frame is too short for it.
            continue
print("unread", flush=True)
# Connections full of data that their peer does not read. They end with this process.
full = []
for _ in range(300):
    sock = socket.create_connection((HOST, HELD), timeout=60)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.setblocking(False)
    full.append(sock)
for _ in range(20):
    for sock in full:
        try:
            sock.send(bytes(1 << 16))
        except OSError:
            # There is no room, or the board has reset the connection.
            continue
print("ended", flush=True)
