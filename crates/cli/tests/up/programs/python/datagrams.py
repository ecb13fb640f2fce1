"""Datagram sockets of an unmodified program on a board (10.9.0.2), with the kernel (10.9.0.1) as the peer: what works
with the system's UDP has to work here. The argument is the port at which the kernel echoes."""

import asyncio
import ctypes
import errno
import os
import select
import socket
import struct
import subprocess
import sys

ECHO = ("10.9.0.1", int(sys.argv[1]))
CLOSED = ("10.9.0.1", int(sys.argv[2]))
libc = ctypes.CDLL(None, use_errno=True)


def udp(family=socket.AF_INET):
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 30, 0))
    return made


def is_on_board(made):
    """A kernel socket has no Unix socket behind it."""
    return os.readlink(f"/proc/self/fd/{made.fileno()}") in unix_sockets()


def unix_sockets():
    with open("/proc/net/unix", encoding="latin-1") as lines:
        # Abstract addresses may contain anything, also ends of lines.
        return {f"socket:[{words[6]}]" for words in map(str.split, lines) if len(words) > 6}


def fails(what, number):
    try:
        what()
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError(f"it must fail with {errno.errorcode[number]}")


def inherited(fd):
    """What a program does with a connected socket that it has inherited over exec."""
    made = socket.socket(fileno=fd)
    assert made.type == socket.SOCK_DGRAM and made.getpeername() == ECHO, made
    made.send(b"after exec")
    assert made.recv(100) == b"after exec"
    os.write(fd, b"written")
    assert os.read(fd, 100) == b"written"


if len(sys.argv) > 3:
    inherited(int(sys.argv[3]))
    sys.exit()

# Without bind and connect.
one = udp()
for length in (0, 1, 1472, 9000, 65507):
    said = bytes(at % 251 for at in range(length))
    assert one.sendto(said, ECHO) == length
    assert one.recvfrom(70000) == (said, ECHO), length
assert is_on_board(one) and one.getsockname()[1] >= 1024
fails(one.getpeername, errno.ENOTCONN)
fails(lambda: one.send(b"nobody"), errno.EDESTADDRREQ)
fails(lambda: one.sendto(bytes(65508), ECHO), errno.EMSGSIZE)
fails(lambda: one.bind(("10.9.0.2", 0)), errno.EINVAL)

# Connected, by every call.
one.connect(ECHO)
assert one.getpeername() == ECHO and one.getsockname()[0] == "10.9.0.2"
assert one.send(b"send") == 4 and one.recv(100) == b"send"
assert os.write(one.fileno(), b"write") == 5 and os.read(one.fileno(), 100) == b"write"
assert os.writev(one.fileno(), [b"wri", b"tev"]) == 6
rooms = [bytearray(4), bytearray(4)]
assert os.readv(one.fileno(), rooms) == 6 and bytes(rooms[0] + rooms[1][:2]) == b"writev"
assert one.sendmsg([b"send", b"msg"]) == 7
assert one.recvmsg(100) == (b"sendmsg", [], 0, ECHO)
one.send(b"truncated")
data, _, flags, _ = one.recvmsg(4)
assert data == b"trun" and flags & socket.MSG_TRUNC
one.send(b"length")
assert select.select([one], [], [], 30)[0]
room = ctypes.create_string_buffer(2)
assert libc.recv(one.fileno(), room, 2, socket.MSG_TRUNC) == 6 and room.raw == b"le"
one.send(b"peeked")
assert one.recv(100, socket.MSG_PEEK) == one.recv(100) == b"peeked"
one.setblocking(False)
fails(lambda: one.recv(100), errno.EAGAIN)
one.setblocking(True)

# An address whose padding is not zero.
padded = struct.pack("H", socket.AF_INET) + struct.pack("!H4s8s", ECHO[1], socket.inet_aton(ECHO[0]), b"garbage!")
assert libc.connect(one.fileno(), padded, 16) == 0
one.send(b"padded")
assert one.recv(100) == b"padded"

# Many messages with one call.
class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_length", ctypes.c_uint), ("parts", ctypes.POINTER(Iovec)),
                ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


class Mmsghdr(ctypes.Structure):
    _fields_ = [("header", Msghdr), ("length", ctypes.c_uint)]


buffers = [ctypes.create_string_buffer(b"%d" % at, 16) for at in range(4)]
parts = (Iovec * 4)(*[Iovec(ctypes.addressof(buffer), 1 + at) for at, buffer in enumerate(buffers)])
messages = (Mmsghdr * 4)(*[Mmsghdr(Msghdr(None, 0, ctypes.pointer(part), 1, None, 0, 0), 0) for part in parts])
assert libc.sendmmsg(one.fileno(), messages, 4, 0) == 4 and [message.length for message in messages] == [1, 2, 3, 4]
for part in parts:
    part.length = 16
got = 0
while got < 4:
    count = libc.recvmmsg(one.fileno(), ctypes.byref(messages[got]), 4 - got, 0x10000, None)
    assert count > 0, ctypes.get_errno()
    got += count
assert sorted(message.length for message in messages) == [1, 2, 3, 4]

# Waiting.
for wait in ("select", "poll", "epoll"):
    if wait == "epoll":
        waiting = select.epoll()
        waiting.register(one, select.EPOLLIN)
        ready = lambda seconds: waiting.poll(seconds)
    elif wait == "poll":
        polled = select.poll()
        polled.register(one, select.POLLIN)
        ready = lambda seconds: polled.poll(seconds * 1000)
    else:
        ready = lambda seconds: select.select([one], [], [], seconds)[0]
    assert not ready(0), wait
    one.send(wait.encode())
    assert ready(30) and one.recv(100) == wait.encode(), wait

# A copy, a forked child, and a program after exec.
copy = one.dup()
copy.send(b"copy")
assert copy.recv(100) == b"copy"
child = os.fork()
if child == 0:
    one.send(b"child")
    os._exit(one.recv(100) != b"child")
assert os.waitpid(child, 0)[1] == 0
command = [sys.executable, __file__, *sys.argv[1:3], str(one.fileno())]
subprocess.run(command, pass_fds=[one.fileno()], check=True)

# Errors, options, and the end of the association.
two = udp()
two.connect(CLOSED)
two.send(b"anybody?")
fails(lambda: two.recv(100), errno.ECONNREFUSED)
assert two.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_DGRAM
two.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
two.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
fails(lambda: two.setsockopt(socket.IPPROTO_IP, 99, 1), errno.ENOPROTOOPT)
assert libc.connect(two.fileno(), struct.pack("H14x", socket.AF_UNSPEC), 16) == 0
fails(two.getpeername, errno.ENOTCONN)
two.sendto(b"free again", ECHO)
assert two.recvfrom(100) == (b"free again", ECHO)
fails(lambda: two.connect(("127.0.0.1", 9)), errno.ENETUNREACH)

# Bound sockets: to the board's address, to all addresses, to the host's.
server = udp()
server.bind(("10.9.0.2", 6000))
assert is_on_board(server) and server.getsockname() == ("10.9.0.2", 6000)
fails(lambda: udp().bind(("10.9.0.2", 6000)), errno.EADDRINUSE)
any_address = udp()
any_address.bind(("", 6001))
assert is_on_board(any_address) and any_address.getsockname() == ("0.0.0.0", 6001)
one.connect(("10.9.0.2", 6001))
one.send(b"to myself")
data, peer = any_address.recvfrom(100)
assert data == b"to myself" and peer[0] == "10.9.0.2"
any_address.sendto(b"back", peer)
assert one.recv(100) == b"back"
kernels = udp()
kernels.bind(("10.9.0.1", 0))
kernels.sendto(b"host", ECHO)
assert kernels.recvfrom(100) == (b"host", ECHO) and not is_on_board(kernels)
ephemeral = udp()
ephemeral.bind(("", 0))
chosen = ephemeral.getsockname()[1]
ephemeral.sendto(b"keeps its port", ECHO)
assert ephemeral.recv(100) == b"keeps its port" and ephemeral.getsockname()[1] == chosen and is_on_board(ephemeral)

# A server that connects its socket to a client, and binds another one for the next client.
servers = [udp(), udp()]
clients = [udp(), udp()]
for server, client in zip(servers, clients):
    fails(lambda: udp().bind(("10.9.0.2", 6002)), errno.EADDRINUSE) if server is servers[1] else None
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("10.9.0.2", 6002))
    client.bind(("10.9.0.1", 0))
    client.connect(("10.9.0.2", 6002))
    client.send(b"hello")
    data, peer = server.recvfrom(100)
    assert data == b"hello" and peer == client.getsockname()
    server.connect(peer)
for number in range(4):
    for server, client in zip(servers, clients):
        client.send(b"%d" % number)
        assert server.recv(100) == b"%d" % number
        server.send(b"answer")
        assert client.recv(100) == b"answer"
servers[0].close()
clients[1].send(b"still there")
assert servers[1].recv(100) == b"still there"

# The loopback, and targets without a route, are the kernel's.
local = udp()
local.bind(("127.0.0.1", 0))
other = udp()
other.sendto(b"loopback", local.getsockname())
assert local.recv(100) == b"loopback" and not is_on_board(other) and not is_on_board(local)
fails(lambda: udp().sendto(b"nowhere", ("192.0.2.1", 9)), errno.ENETUNREACH)

# An IPv6 socket with an IPv4 target.
six = udp(socket.AF_INET6)
mapped = ("::ffff:10.9.0.1", ECHO[1])
six.sendto(b"mapped", mapped)
data, peer = six.recvfrom(100)
assert data == b"mapped" and peer[:2] == mapped, peer
six.connect(mapped)
assert six.getpeername()[:2] == mapped and six.getsockname()[0] == "::ffff:10.9.0.2"


# An event loop.
class Heard(asyncio.DatagramProtocol):
    def __init__(self):
        self.heard = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        transport.sendto(b"asyncio")

    def datagram_received(self, data, peer):
        self.heard.set_result((data, peer))


async def loop():
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(Heard, remote_addr=ECHO)
    assert await asyncio.wait_for(protocol.heard, 30) == (b"asyncio", ECHO)
    transport.close()


asyncio.run(loop())
print("all as with the system's UDP")
