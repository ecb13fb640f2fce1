import struct
# The peer's listener belongs to the kernel.
listener = socket.create_server(far)
TCP, MORE = socket.IPPROTO_TCP, socket.MSG_MORE

def connected():
    s = socket.create_connection(far)
    s.setsockopt(TCP, socket.TCP_NODELAY, 1)
    peer = listener.accept()[0]
    return s, peer

echo, far_echo = connected()

def is_held(peer):
    """Returns whether nothing has arrived, although the board has had a turn."""
    for s, other in (echo, far_echo), (far_echo, echo):
        s.sendall(b"x")
        assert other.recv(1) == b"x"
    try:
        return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True

def segments(peer):
    return struct.unpack_from("=I", peer.getsockopt(TCP, socket.TCP_INFO, 192), 152)[0]

def sees(trial):
    """The board holds bytes for 200 ms, which a busy machine can exceed, so one of many trials counts."""
    return any(trial() for _ in range(50))

def one_segment(first, last, wanted):
    """Returns whether the first write waits for the last, and both arrive in one segment."""
    before = segments(peer)
    first()
    held = is_held(peer)
    last()
    assert peer.recv(len(wanted), socket.MSG_WAITALL) == wanted
    return held and segments(peer) == before + 1

with open("file", "w+b") as file:
    file.write(b"file")
    file.flush()
    s, peer = connected()
    cork = lambda value: s.setsockopt(TCP, socket.TCP_CORK, value)
    firsts = [lambda: s.send(b"ab", MORE), lambda: s.sendto(b"ab", MORE, far), lambda: s.sendmsg([b"a", b"b"], [], MORE)]
    lasts = [lambda: s.send(b"file"), lambda: s.sendmsg([b"fi", b"le"]), lambda: os.write(s.fileno(), b"file"),
             lambda: os.writev(s.fileno(), [b"file"]), lambda: os.sendfile(s.fileno(), file.fileno(), 0, 4)]
    for first in firsts:
        assert sees(lambda: one_segment(first, lasts[0], b"abfile")), firsts.index(first)
    for last in lasts:
        assert sees(lambda: one_segment(firsts[0], last, b"abfile")), lasts.index(last)
    # Several writes with the flag.
    assert sees(lambda: one_segment(lambda: [s.send(b"a", MORE) for _ in range(9)], lasts[0], 9 * b"a" + b"file"))
    corked = lambda: (cork(1), s.send(b"a"), s.send(b"b"))
    assert sees(lambda: one_segment(corked, lambda: (s.send(b"c"), cork(0)), b"abc"))
    # TCP_NODELAY sends what the cork holds.
    assert sees(lambda: one_segment(corked, lambda: s.setsockopt(TCP, socket.TCP_NODELAY, 1), b"ab"))
    cork(0)

# Full segments leave at once; the rest is held.
def is_cut():
    mss = s.getsockopt(TCP, socket.TCP_MAXSEG)
    s.send(bytes(2 * mss + 100), MORE)
    assert len(peer.recv(2 * mss, socket.MSG_WAITALL)) == 2 * mss
    held = is_held(peer)
    assert len(peer.recv(100, socket.MSG_WAITALL)) == 100
    s.send(b".")
    assert peer.recv(1) == b"."
    return held
assert sees(is_cut)

# If no more data follows, the board sends what it holds after a while, and at the end of the stream.
for option in False, True:
    s.setsockopt(TCP, socket.TCP_CORK, option)
    for _ in range(3):
        s.send(b"alone", 0 if option else MORE)
        assert peer.recv(5, socket.MSG_WAITALL) == b"alone"
s.send(b"last", MORE)
s.shutdown(socket.SHUT_WR)
assert peer.recv(9, socket.MSG_WAITALL) == b"last" and peer.recv(1) == b""

# A child's write ends the wait of its parent's.
s, peer = connected()
s.send(b"parent", MORE)
if not os.fork():
    s.send(b"child")
    os._exit(0)
os.wait()
s.close()
assert peer.recv(99, socket.MSG_WAITALL) == b"parentchild"

# Datagrams cannot be put together.
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
assert caught(lambda: u.sendto(b"a", MORE, far)) == errno.EOPNOTSUPP
print("all is well")
