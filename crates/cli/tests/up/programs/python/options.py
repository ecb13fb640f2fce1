import struct, termios, time
# The peer's listener belongs to the kernel.
listener = socket.create_server(far)
TCP, IP, SOCKET = socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.SOL_SOCKET

def delayed_acks():
    names, values = [line.split() for line in open("/proc/net/netstat") if line.startswith("TcpExt:")]
    return int(values[names.index("DelayedACKs")])

def sends_at_once(s, peer):
    """Returns whether a short segment is sent although the one before it has not been acknowledged."""
    for _ in range(20):
        peer.setsockopt(TCP, socket.TCP_QUICKACK, 0)
        before = delayed_acks()
        for piece in b"a", b"b":
            s.sendall(piece)
            assert peer.recv(1) == piece
        if delayed_acks() == before:
            return True
    return False

# TCP_NODELAY takes effect, whether it is set before connect, afterwards, or on the listener.
no_delay = TCP, socket.TCP_NODELAY, 1
s, peer = connected()
assert s.getsockopt(TCP, socket.TCP_NODELAY) == 0
assert not sends_at_once(s, peer), "Nagle's algorithm is on"
s.setsockopt(*no_delay)
assert s.getsockopt(TCP, socket.TCP_NODELAY) == 1
assert sends_at_once(s, peer), "set after connect"
s, peer = connected(no_delay)
assert s.getsockopt(TCP, socket.TCP_NODELAY) == 1
assert sends_at_once(s, peer), "set before connect"
server = socket.socket()
server.setsockopt(*no_delay)
server.bind(("10.9.0.2", 6000))
server.listen()
peer = socket.create_connection(("10.9.0.2", 6000), source_address=("10.9.0.1", 0))
s, _ = server.accept()
assert s.getsockopt(TCP, socket.TCP_NODELAY) == 1
assert sends_at_once(s, peer), "inherited from the listener"

# getsockopt returns the options that act on the connection, and those that the board only stores.
kept = [(SOCKET, socket.SO_KEEPALIVE, 1), (TCP, socket.TCP_KEEPIDLE, 11), (TCP, socket.TCP_KEEPINTVL, 12),
        (TCP, socket.TCP_KEEPCNT, 13), (TCP, socket.TCP_USER_TIMEOUT, 14000), (IP, socket.IP_TOS, 0x68),
        (TCP, socket.TCP_CORK, 1), (TCP, socket.TCP_QUICKACK, 0), (TCP, socket.TCP_NOTSENT_LOWAT, 16384),
        (TCP, socket.TCP_LINGER2, 15), (TCP, socket.TCP_SYNCNT, 3)]
s, _ = connected()
usual = [s.getsockopt(*option[:2]) for option in kept]
assert usual == [socket.socket().getsockopt(*option[:2]) for option in kept], usual
for option in kept:
    s.setsockopt(*option)
before, _ = connected(*kept)
for s in s, before:
    for level, option, value in kept:
        # The kernel's socket, before connect, reports QUICKACK as it is at the moment.
        if option != socket.TCP_QUICKACK:
            assert s.getsockopt(level, option) == value, (level, option)

# All packets of a connection have the class that is set before connect(), from its SYN on, or that of the listener,
# from the SYN-ACK on.
sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800))
sniffer.bind(("kiban0", 0x800))

def accepted():
    server = socket.socket()
    server.setsockopt(IP, socket.IP_TOS, 0xb8)
    server.bind(("10.9.0.2", 6001))
    server.listen()
    peer = socket.create_connection(("10.9.0.2", 6001), source_address=("10.9.0.1", 0))
    return server.accept()[0], peer

for begin, first in (lambda: connected((IP, socket.IP_TOS, 0xb8)), 2), (accepted, 18):
    s, peer = begin()
    s.sendall(b"x")
    peer.recv(1)
    classes, flags = [], []
    while not flags or not flags[-1] & 8:
        packet, name = sniffer.recvfrom(2000)
        if packet[9] == TCP and packet[20:22] == s.getsockname()[1].to_bytes(2):
            classes.append(packet[1])
            flags.append(packet[33])
    assert set(classes) == {0xb8} and flags[0] == first, (classes, flags)

# Options that would change the connection, but that the board lacks, fail before and after connect.
for s in socket.socket(), connected()[0]:
    for option in (TCP, socket.TCP_MAXSEG, 1000), (IP, socket.IP_TTL, 1):
        assert caught(lambda: s.setsockopt(*option)) == errno.ENOPROTOOPT, option
assert caught(lambda: connected()[0].setsockopt(TCP, 99, 1)) == errno.ENOPROTOOPT
assert caught(lambda: connected()[0].setsockopt(TCP, socket.TCP_NODELAY, b"")) == errno.EINVAL
assert caught(lambda: connected()[0].setsockopt(TCP, socket.TCP_NODELAY, None, 4)) == errno.EFAULT
for option in socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT:
    assert caught(lambda: connected()[0].setsockopt(TCP, option, 0)) == errno.EINVAL, option
s, _ = connected()
s.setsockopt(IP, socket.IP_TOS, b"\x48")
assert s.getsockopt(IP, socket.IP_TOS) == 0x48, "a byte"

# TCP_NOTSENT_LOWAT limits the unsent bytes: those that have been written and have not arrived at a peer that does not
# read. A socket is not writable once they reach the limit.
LIMIT = 32768
def waiting(peer):
    return struct.unpack("i", fcntl.ioctl(peer, termios.FIONREAD, bytes(4)))[0]

def accepts_with_limit():
    server = socket.socket()
    server.setsockopt(TCP, socket.TCP_NOTSENT_LOWAT, LIMIT)
    server.bind(("10.9.0.2", 6002))
    server.listen()
    peer = socket.create_connection(("10.9.0.2", 6002), source_address=("10.9.0.1", 0))
    return server.accept()[0], peer

pairs = [connected(), connected((TCP, socket.TCP_NOTSENT_LOWAT, LIMIT)), connected(), accepts_with_limit()]
pairs[2][0].setsockopt(TCP, socket.TCP_NOTSENT_LOWAT, LIMIT)
for is_limited, (s, peer) in zip([False, True, True, True], pairs):
    s.setblocking(False)
    poll, written, unsent = select.poll(), 0, 0
    poll.register(s, select.POLLOUT)
    while poll.poll(0) or (unsent > LIMIT) == is_limited:
        if poll.poll(100):
            written += s.send(bytes(1 << 16))
        unsent = written - waiting(peer)
    assert (0 < unsent <= LIMIT) == is_limited, (is_limited, unsent)
    left = written
    while left:
        left -= len(peer.recv(left))
    assert poll.poll(30000), "writable again"

# TCP_QUICKACK acknowledges at once, so that the peer's Nagle algorithm does not wait.
def exchange(quick):
    # Only the second piece waits, for all of the time: everything before is acknowledged.
    while struct.unpack("i", fcntl.ioctl(peer, termios.TIOCOUTQ, bytes(4)))[0]:
        pass
    s.setsockopt(TCP, socket.TCP_QUICKACK, quick)
    began = time.monotonic()
    for piece in b"a", b"b":
        peer.sendall(piece)
    assert s.recv(2, socket.MSG_WAITALL) == b"ab"
    return time.monotonic() - began

s, peer = connected()
peer.sendall(bytes(1000))
s.recv(1000, socket.MSG_WAITALL)
assert min(exchange(1) for _ in range(20)) < 0.03
assert min(exchange(0) for _ in range(5)) > 0.035

# TCP_CONGESTION is the board's algorithm, which cannot be changed.
for s in socket.socket(), connected()[0]:
    assert s.getsockopt(TCP, socket.TCP_CONGESTION, 16) == b"cubic".ljust(16, b"\0")
    for name in b"cubic", b"cubic\0":
        s.setsockopt(TCP, socket.TCP_CONGESTION, name)
    for name in b"bbr", b"cub", b"reno":
        assert caught(lambda: s.setsockopt(TCP, socket.TCP_CONGESTION, name)) == errno.ENOENT, name

# SO_MAX_PACING_RATE limits the rate of the data, in bytes per second, whether it is set before connect or afterwards.
PACING, RATE = 47, 1 << 20
paced = connected((SOCKET, PACING, RATE)), connected()
paced[1][0].setsockopt(SOCKET, PACING, struct.pack("=Q", RATE))
for s, peer in paced:
    assert s.getsockopt(SOCKET, PACING) == RATE and s.getsockopt(SOCKET, PACING, 8) == struct.pack("=Q", RATE)
    began = time.monotonic()
    writer = threading.Thread(target=s.sendall, args=[bytes(RATE)])
    writer.start()
    assert len(peer.recv(RATE, socket.MSG_WAITALL)) == RATE
    writer.join()
    # The first segments leave at once.
    assert time.monotonic() - began > 0.7, time.monotonic() - began
    s.setsockopt(SOCKET, PACING, struct.pack("=Q", (1 << 64) - 1))
    assert s.getsockopt(SOCKET, PACING, 8) == bytes([255] * 8)

# TCP_INFO describes the board's connection.
before = time.monotonic()
s, peer = connected()
info = s.getsockopt(TCP, socket.TCP_INFO, 236)
rcv_mss, data_received, pmtu = (struct.unpack_from("=I", info, at)[0] for at in (20, 52, 60))
assert rcv_mss == 536 and pmtu == 1500, (rcv_mss, pmtu)
assert data_received <= (time.monotonic() - before) * 1000, "since the connection was established"
s.sendall(bytes(5000))
peer.recv(5000, socket.MSG_WAITALL)
peer.sendall(b"x")
s.recv(1)
info = s.getsockopt(TCP, socket.TCP_INFO, 236)
word, long = lambda at: struct.unpack_from("=I", info, at)[0], lambda at: struct.unpack_from("=Q", info, at)[0]
mss = s.getsockopt(TCP, socket.TCP_MAXSEG)
assert len(info) == 236 and info[0] == 1 and word(16) == mss and 500 < mss <= 1460, (info, mss)
rtt, cwnd, segments_out, segments_in = word(68), word(80), word(136), word(140)
assert rtt > 0 and cwnd >= 10 and segments_out >= 2 and segments_in >= 1, (rtt, cwnd, segments_out, segments_in)
assert long(128) == 1 and long(200) >= 5000, "bytes received and sent"
assert len(s.getsockopt(TCP, socket.TCP_INFO, 104)) == 104
s.close()

# SO_LINGER with zero resets the connection at close; without it, a FIN is sent.
for linger, end in (struct.pack("ii", 0, 0), b""), (struct.pack("ii", 1, 0), errno.ECONNRESET):
    s, peer = connected()
    s.setsockopt(SOCKET, socket.SO_LINGER, linger)
    assert s.getsockopt(SOCKET, socket.SO_LINGER, 8) == linger
    s.close()
    assert caught(lambda: peer.recv(1)) == end, linger
print("all is well")
