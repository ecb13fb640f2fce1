# Options of socket(7) that are set before connect() and listen() keep their values, and accepted sockets inherit them.
import struct
SOCKET, DONTROUTE, TIMESTAMP, BUSY_POLL = socket.SOL_SOCKET, 5, 29, 46
listener = socket.create_server(far)
options = [(socket.SO_RCVBUF, 80000), (socket.SO_SNDBUF, 400000), (socket.SO_RCVLOWAT, 3), (socket.SO_PRIORITY, 5),
           (socket.SO_BROADCAST, 1), (DONTROUTE, 1), (TIMESTAMP, 1), (socket.SO_RCVTIMEO, struct.pack("qq", 7, 0)),
           (socket.SO_SNDTIMEO, struct.pack("qq", 8, 0))]
rights = [(socket.SO_MARK, 9), (BUSY_POLL, 50)]

def new():
    s = socket.socket()
    for option in options:
        s.setsockopt(SOCKET, *option)
    for option in list(rights):
        # They need CAP_NET_ADMIN.
        if caught(lambda: s.setsockopt(SOCKET, *option)):
            rights.remove(option)
    return s

def values(s):
    return [s.getsockopt(SOCKET, name, 16) for name, _ in options + rights]

s = new()
wanted = values(s)
def check(s, when):
    assert values(s) == wanted, (when, values(s), wanted)

s.connect(far)
check(s, "connected")
peer = listener.accept()[0]
peer.sendall(b"xyz")
assert s.recv(3) == b"xyz"
s.sendall(bytes(300000))
assert len(peer.recv(300000, socket.MSG_WAITALL)) == 300000

# connect() that does not wait: the socket is not writable before the stream is open.
s = new()
s.setblocking(False)
assert caught(lambda: s.connect(far)) in (None, errno.EINPROGRESS)
assert select.select([], [s], [], 60)[1] and s.getsockopt(SOCKET, socket.SO_ERROR) == 0
check(s, "connected without waiting")
listener.accept()
s = new()
s.setblocking(False)
s.connect_ex(("10.9.0.77", 80))
assert not select.select([], [s], [], 0)[1], "nobody answers"
s.close()

# After a failed connect, the socket has its options, and those of TCP.
s = new()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.setsockopt(SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
assert caught(lambda: s.connect(nobody)) == errno.ECONNREFUSED
s.connect(far)
check(s, "connected again")
assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
assert s.getsockopt(SOCKET, socket.SO_LINGER, 8) == struct.pack("ii", 1, 5)

server = new()
server.bind(("10.9.0.2", 6001))
server.listen()
check(server, "listening")
caller = socket.create_connection(("10.9.0.2", 6001), source_address=("10.9.0.1", 0))
s, _ = server.accept()
assert s.getsockopt(SOCKET, socket.SO_PRIORITY) == 0, "not inherited"
s.setsockopt(SOCKET, socket.SO_PRIORITY, 5)
check(s, "accepted")
caller.sendall(b"abc")
assert s.recv(3) == b"abc"
print("all is well")
