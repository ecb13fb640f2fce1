"""Options and ancillary data of UDP sockets on a board. The peers are sockets of the kernel."""

import ctypes
import errno
import os
import socket
import struct
import subprocess
import time

IP, IP6, UDP, SOCKET = socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.IPPROTO_UDP, socket.SOL_SOCKET
TOS, TTL, PKTINFO, RECVERR, RECVTTL, RECVTOS, MTU_DISCOVER = 1, 2, 8, 11, 12, 13, 10
HOPS6, RECVERR6, RECVPKTINFO6, PKTINFO6, RECVHOPS6, HOPLIMIT6, RECVTCLASS6, TCLASS6 = 16, 25, 49, 50, 51, 52, 66, 67
SEGMENT, GRO, TIMESTAMP, TIMESTAMPNS, TIMESTAMPING = 103, 104, 29, 35, 37
ERRQUEUE, CTRUNC = 0x2000, 8
number = lambda value: struct.pack("i", value)


def caught(call):
    try:
        return call()
    except OSError as error:
        return error.errno


def new(family, *options, bound=None):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(30)
    for option in options:
        s.setsockopt(*option)
    if bound:
        s.bind(bound)
    return s


def received(s, room=1000):
    data, control, flags, sender = s.recvmsg(65536, room)
    return data, {(level, kind): value for level, kind, value in control}, flags, sender


# IPv4, on the kernel.
tells = [(IP, PKTINFO, 1), (IP, RECVTTL, 1), (IP, RECVTOS, 1)]
peer = new(socket.AF_INET, *tells, bound=("10.9.0.1", 0))
there = peer.getsockname()
closed = new(socket.AF_INET, bound=("10.9.0.1", 0))
nobody = closed.getsockname()
closed.close()

# Options that are set before the socket becomes the board's.
s = new(socket.AF_INET, *tells, (IP, TTL, 9), (IP, TOS, 0x48), (SOCKET, TIMESTAMPNS, 1))
assert s.sendto(b"a", there) == 1
data, control, _, sender = received(peer)
assert (data, sender[0]) == (b"a", "10.9.0.2"), "it is the board's"
assert control[IP, TTL] == number(9) and control[IP, TOS] == b"\x48", control
here = ("10.9.0.2", sender[1])
for option, value in (TTL, 9), (TOS, 0x48), (PKTINFO, 1), (RECVTTL, 1), (RECVTOS, 1), (RECVERR, 0):
    assert s.getsockopt(IP, option) == value, option

# What the program receives.
peer.setsockopt(IP, TTL, 7)
peer.setsockopt(IP, TOS, 0x88)
peer.sendto(b"back", here)
data, control, flags, sender = received(s)
assert (data, sender, flags) == (b"back", there, 0)
assert control[IP, TTL] == number(7) and control[IP, TOS] == b"\x88", control
index, spec, address = struct.unpack("i4s4s", control[IP, PKTINFO])
assert index == 0 and spec == address == socket.inet_aton("10.9.0.2"), control
seconds, nanoseconds = struct.unpack("qq", control[SOCKET, TIMESTAMPNS])
assert 0 <= nanoseconds < 10**9 and abs(time.time() - seconds) < 3600, control
s.setsockopt(SOCKET, TIMESTAMP, 1)
assert (s.getsockopt(SOCKET, TIMESTAMP), s.getsockopt(SOCKET, TIMESTAMPNS)) == (1, 0)
# Room for less: it is cut.
for room, whole in (0, 0), (15, 0), (socket.CMSG_SPACE(16), 1), (socket.CMSG_SPACE(16) + socket.CMSG_SPACE(12) + 4, 2):
    peer.sendto(b"cut", here)
    data, control, flags, _ = received(s, room)
    assert data == b"cut" and flags == CTRUNC and len(control) == whole, (room, control, flags)

# What a single datagram has.
assert s.sendmsg([b"o", b"ne"], [(IP, TTL, number(3)), (IP, TOS, b"\x20")], 0, there) == 3
data, control, _, _ = received(peer)
assert data == b"one" and control[IP, TTL] == number(3) and control[IP, TOS] == b"\x20", control
assert s.sendmsg([b"two"], [(IP, TOS, number(0x28))], 0, there) == 3
control = received(peer)[1]
assert control[IP, TTL] == number(9) and control[IP, TOS] == b"\x28", control
source = lambda address, index=0: (IP, PKTINFO, struct.pack("i4s4s", index, socket.inet_aton(address), bytes(4)))
for address in "10.9.0.3", "10.9.0.2":
    s.sendmsg([b"from"], [source(address)], 0, there)
    assert received(peer)[3] == (address, here[1])
peer.sendto(b"other", ("10.9.0.3", here[1]))
assert received(s)[1][IP, PKTINFO][8:] == socket.inet_aton("10.9.0.3")
s.sendmsg([b"foreign"], [source("192.0.2.1")], 0, there)
assert caught(lambda: s.recv(9)) in (errno.EADDRNOTAVAIL, errno.EINVAL)

# Control data that is wrong.
wrong = [
    ((IP, TTL, number(0)), errno.EINVAL),
    ((IP, TTL, number(256)), errno.EINVAL),
    ((IP, TTL, number(-1)), errno.EINVAL),
    ((IP, TTL, b"\1\0"), errno.EINVAL),
    ((IP, TOS, number(256)), errno.EINVAL),
    ((IP, TOS, b""), errno.EINVAL),
    ((IP, PKTINFO, bytes(11)), errno.EINVAL),
    ((IP, 99, number(1)), errno.EINVAL),
    ((UDP, SEGMENT, number(100)), errno.EINVAL),
    ((UDP, GRO, number(100)), errno.EINVAL),
    (source("10.9.0.2", 1), errno.ENODEV),
]
for control, error in wrong:
    assert caught(lambda: s.sendmsg([b"x"], [control], 0, there)) == error, control
libc = ctypes.CDLL(None, use_errno=True)


class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("name_length", ctypes.c_uint32), ("parts", ctypes.c_void_p),
                ("count", ctypes.c_size_t), ("control", ctypes.c_char_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


name = struct.pack("=H", socket.AF_INET) + struct.pack("!H", there[1]) + socket.inet_aton(there[0]) + bytes(8)
for length, room, error in (15, 24, errno.EINVAL), (0, 24, errno.EINVAL), (25, 24, errno.EINVAL), (1 << 40, 24, errno.EINVAL):
    control = struct.pack("Nii", length, IP, TTL) + number(1) + bytes(4)
    message = Message(name, 16, None, 0, control, room, 0)
    assert libc.sendmsg(s.fileno(), ctypes.byref(message), 0) < 0 and ctypes.get_errno() == error, length
# Control data of no header is none.
message = Message(name, 16, None, 0, bytes(15), 15, 0)
assert libc.sendmsg(s.fileno(), ctypes.byref(message), 0) == 0
assert received(peer)[0] == b""

# Values of options.
for option, values in (TTL, (0, 256, -2)), (MTU_DISCOVER, (-1, 6)):
    for value in values:
        assert caught(lambda: s.setsockopt(IP, option, value)) == errno.EINVAL, (option, value)
s.setsockopt(IP, TTL, -1)
assert s.getsockopt(IP, TTL) == socket.socket(socket.AF_INET, socket.SOCK_DGRAM).getsockopt(IP, TTL)
assert caught(lambda: s.setsockopt(IP, 99, 1)) == errno.ENOPROTOOPT
assert caught(lambda: s.setsockopt(SOCKET, TIMESTAMPING, 1)) == errno.ENOPROTOOPT

# UDP_SEGMENT, per socket and per datagram.
pieces = lambda: [received(peer)[0] for _ in range(3)]
payload = bytes(range(250))
cut = [payload[:100], payload[100:200], payload[200:]]
before = new(socket.AF_INET, (UDP, SEGMENT, 100), (UDP, GRO, 1))
assert before.sendmsg([payload[:150], payload[150:]], [], 0, there) == 250 and pieces() == cut
assert (before.getsockopt(UDP, SEGMENT), before.getsockopt(UDP, GRO)) == (100, 1)
assert s.sendmsg([payload], [(UDP, SEGMENT, struct.pack("H", 100))], 0, there) == 250 and pieces() == cut
s.setsockopt(UDP, SEGMENT, 100)
assert s.sendto(payload, there) == 250 and pieces() == cut
assert s.sendto(b"short", there) == 5 and received(peer)[0] == b"short"
assert caught(lambda: s.sendto(bytes(100 * 128 + 1), there)) == errno.EINVAL

# Errors: without IP_RECVERR, a socket that is not connected gets none.
s.setsockopt(UDP, SEGMENT, 0)
s.sendto(b"nobody", nobody)
peer.sendto(b"still", here)
assert s.recv(9) == b"still"


def last_error(s, level, option):
    # With a timeout, Python would first wait until the socket is readable.
    s.setblocking(False)
    _, control, flags, target = s.recvmsg(100, 200, ERRQUEUE)
    ((its_level, kind, report),) = control
    assert (its_level, kind) == (level, option) and flags & ERRQUEUE
    assert caught(lambda: s.recvmsg(9, 99, ERRQUEUE)) == errno.EAGAIN
    s.settimeout(30)
    return struct.unpack_from("=IBBBBII", report), report[16:], target


for late in False, True:
    s = new(socket.AF_INET, *([] if late else [(IP, RECVERR, 1)]))
    s.sendto(b"first", there)
    here = ("10.9.0.2", received(peer)[3][1])
    if late:
        s.setsockopt(IP, RECVERR, 1)
    s.sendto(b"nobody", nobody)
    assert caught(lambda: s.recv(9)) == errno.ECONNREFUSED
    report, offender, target = last_error(s, IP, RECVERR)
    # The error number, the origin (ICMP), type and code.
    assert report[:4] == (errno.ECONNREFUSED, 2, 3, 3) and target == nobody, (report, target)
    assert offender[:8] == struct.pack("=HH", socket.AF_INET, 0) + socket.inet_aton("10.9.0.1"), offender
# An error again, after the last one has been read.
s.sendto(b"nobody", nobody)
assert caught(lambda: s.recv(9)) == errno.ECONNREFUSED
last_error(s, IP, RECVERR)

# recvmmsg returns what came before an error; the next call returns the error.
gone = new(socket.AF_INET, bound=("10.9.0.1", 0))
s = new(socket.AF_INET)
s.connect(gone.getsockname())
gone.sendto(b"x", s.getsockname())
gone.close()
s.settimeout(None)
s.send(b"nobody")


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Many(ctypes.Structure):
    _fields_ = [("message", Message), ("done", ctypes.c_uint)]


room = ctypes.create_string_buffer(20)
parts = (Part * 2)(*[Part(ctypes.addressof(room) + 10 * at, 10) for at in range(2)])
messages = (Many * 2)(*[Many(Message(None, 0, ctypes.addressof(parts) + at * 16, 1, None, 0, 0)) for at in range(2)])
assert libc.recvmmsg(s.fileno(), messages, 2, 0, None) == 1 and messages[0].done == 1 and room.raw[:1] == b"x"
assert caught(lambda: s.recv(9)) == errno.ECONNREFUSED

# A process that has had no datagram socket receives one.
ours, theirs = socket.socketpair()
starts = "import os, socket\n" \
    f"s = socket.socket(fileno=socket.recv_fds(socket.socket(fileno={theirs.fileno()}), 1, 1)[1][0])\n" \
    "assert (s.family, s.type, s.getsockname()[0]) == (socket.AF_INET, socket.SOCK_DGRAM, '0.0.0.0')\n" \
    f"s.sendto(b'passed', {peer.getsockname()})\n"
child = subprocess.Popen(["python3", "-c", starts], pass_fds=[theirs.fileno()])
with new(socket.AF_INET) as passed:
    passed.sendto(b"own", peer.getsockname())
    assert received(peer)[0] == b"own"
    socket.send_fds(ours, [b"."], [passed.fileno()])
    assert child.wait() == 0 and received(peer)[0] == b"passed"

# IPv6.
tells = [(IP6, RECVPKTINFO6, 1), (IP6, RECVHOPS6, 1), (IP6, RECVTCLASS6, 1)]
six = new(socket.AF_INET6, *tells, (IP6, HOPS6, 11), (IP6, TCLASS6, 0x48), bound=("fd00:9::1", 0))
there = six.getsockname()
s = new(socket.AF_INET6, *tells, (IP6, HOPS6, 9), (IP6, TCLASS6, 0x88), (IP6, RECVERR6, 1), (IP, RECVTTL, 1))
s.sendto(b"a", there)
data, control, _, sender = received(six)
assert control[IP6, HOPLIMIT6] == number(9) and control[IP6, TCLASS6] == number(0x88), control
six.sendto(b"b", sender)
data, control, _, _ = received(s)
assert control[IP6, HOPLIMIT6] == number(11) and control[IP6, TCLASS6] == number(0x48), control
assert control[IP6, PKTINFO6][:16] == socket.inet_pton(socket.AF_INET6, "fd00:9::2"), control
s.sendmsg([b"c"], [(IP6, HOPLIMIT6, number(3)), (IP6, TCLASS6, number(-1))], 0, there)
control = received(six)[1]
assert control[IP6, HOPLIMIT6] == number(3) and control[IP6, TCLASS6] == number(0), control
for control in (IP6, HOPLIMIT6, number(256)), (IP6, PKTINFO6, bytes(19)), (IP6, TCLASS6, b"\1"):
    assert caught(lambda: s.sendmsg([b"x"], [control], 0, there)) == errno.EINVAL, control
nobody = new(socket.AF_INET6, bound=("fd00:9::1", 0))
target = nobody.getsockname()
nobody.close()
s.sendto(b"nobody", target)
assert caught(lambda: s.recv(9)) == errno.ECONNREFUSED
report, offender, its = last_error(s, IP6, RECVERR6)
assert report[:4] == (errno.ECONNREFUSED, 3, 1, 4) and its[:2] == target[:2], (report, its)
assert offender[8:24] == socket.inet_pton(socket.AF_INET6, "fd00:9::1"), offender
# IPv4 on an IPv6 socket.
any6 = new(socket.AF_INET6, *tells, (IP, RECVTTL, 1), (IP, TTL, 5))
mapped = ("::ffff:10.9.0.1", peer.getsockname()[1])
any6.sendto(b"four", mapped)
data, control, _, sender = received(peer)
assert control[IP, TTL] == number(5), control
peer.sendto(b"four", sender)
data, control, _, _ = received(any6)
assert control[IP, TTL] == number(7) and (IP6, HOPLIMIT6) not in control, control
assert control[IP6, PKTINFO6][:16] == socket.inet_pton(socket.AF_INET6, "::ffff:10.9.0.2"), control
print("all as with the system's UDP")
