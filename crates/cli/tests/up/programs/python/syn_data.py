import struct
TCP, FASTOPEN, FASTOPEN_CONNECT, MSG_FASTOPEN = socket.IPPROTO_TCP, 23, 30, 0x20000000
SYN_DATA = 32  # TCPI_OPT_SYN_DATA: the data of a SYN has been acknowledged.

def has_syn_data(s):
    """Returns whether the SYN of a kernel's connection carried data, and that data was accepted."""
    return bool(s.getsockopt(TCP, socket.TCP_INFO, 104)[5] & SYN_DATA)

def listener(address):
    s = socket.socket()
    s.setsockopt(TCP, FASTOPEN, 16)
    s.bind(address)
    s.listen()
    return s

def accepted(bytes_in):
    """Accepts a connection to the kernel's listener, and receives what has been sent."""
    peer, _ = kernel.accept()
    assert peer.recv(len(bytes_in), socket.MSG_WAITALL) == bytes_in
    return peer

def answers(s, peer):
    peer.sendall(b"answer")
    assert s.recv(6, socket.MSG_WAITALL) == b"answer"
    peer.close()
    assert s.recv(1) == b""

kernel = listener(far)
assert kernel.getsockopt(TCP, FASTOPEN) == 16

# Without a cookie, nothing is sent yet. The SYN requests a cookie.
s = socket.socket()
s.setblocking(False)
# The handshake may already be complete.
if caught(lambda: s.sendto(b"request", MSG_FASTOPEN, far)) == errno.EINPROGRESS:
    assert select.select([], [s], [], 30)[1]
    s.sendall(b"request")
s.setblocking(True)
peer = accepted(b"request")
assert not has_syn_data(peer)
answers(s, peer)

# With one, the data leaves in the SYN: with a blocking socket, with a non-blocking one, and in several parts.
long = bytes(at * 7 % 251 for at in range(100000))
for data in b"request", long:
    s = socket.socket()
    sender = threading.Thread(target=lambda: sent.append(s.sendto(data, MSG_FASTOPEN, far)))
    sent = []
    sender.start()
    peer = accepted(data)
    sender.join()
    assert sent == [len(data)] and has_syn_data(peer), (len(data), sent, has_syn_data(peer))
    answers(s, peer)
s = socket.socket()
s.setblocking(False)
sent = s.sendto(long, MSG_FASTOPEN, far)
# On a busy machine, the handshake may be complete before the call returns: then there is room for all.
assert 500 < sent <= len(long), sent
s.setblocking(True)
peer = accepted(long[:sent])
assert has_syn_data(peer)
answers(s, peer)
s = socket.socket()
assert s.sendmsg([b"one ", b"", b"request ", b"in parts"], [], MSG_FASTOPEN, far) == 20
peer = accepted(b"one request in parts")
assert has_syn_data(peer)
# The socket is connected, so it cannot connect again.
assert caught(lambda: s.sendto(b"x", MSG_FASTOPEN, far)) == errno.EISCONN
answers(s, peer)
assert caught(lambda: socket.socket().sendto(b"x", MSG_FASTOPEN, nobody)) == errno.ECONNREFUSED
s = socket.socket()
assert caught(lambda: call("sendto", s.fileno(), b"x", 1, MSG_FASTOPEN, bytes(16), 16)) == errno.EOPNOTSUPP

# With TCP_FASTOPEN_CONNECT, connect() returns at once, and the first write is sent in the SYN.
def deferred(to=far):
    s = socket.socket()
    s.setsockopt(TCP, FASTOPEN_CONNECT, 1)
    s.connect(to)
    return s
s = deferred()
assert s.getsockopt(TCP, FASTOPEN_CONNECT) == 1
assert caught(lambda: s.setsockopt(TCP, FASTOPEN_CONNECT, 0)) == errno.EINVAL
assert s.getsockname()[0] == "10.9.0.2" and s.getpeername() == far
assert not select.select([kernel], [], [], 0)[0] and select.select([], [s], [], 0)[1]
os.write(s.fileno(), b"request")
peer = accepted(b"request")
assert has_syn_data(peer)
answers(s, peer)
s = deferred()
sender = threading.Thread(target=s.sendall, args=(long,))
sender.start()
peer = accepted(long)
sender.join()
assert has_syn_data(peer)
answers(s, peer)
# What has been written arrives, too, if the program closes its socket at once.
s = deferred()
s.send(b"request")
s.close()
peer = accepted(b"request")
assert has_syn_data(peer) and peer.recv(1) == b""
peer.close()
# A program that writes nothing opens no connection.
deferred().close()
# The error of the connect is that of the next read.
s = deferred(nobody)
s.send(b"request")
assert caught(lambda: s.recv(1)) == errno.ECONNREFUSED
assert not select.select([kernel], [], [], 0)[0]

# The board listens, and the kernel connects.
board = listener(("10.9.0.2", 6000))
assert board.getsockopt(TCP, FASTOPEN) == 16
def calls():
    s = socket.socket()
    s.bind(("10.9.0.1", 0))
    assert s.sendto(b"request", MSG_FASTOPEN, ("10.9.0.2", 6000)) == 7
    ours, _ = board.accept()
    assert ours.recv(7, socket.MSG_WAITALL) == b"request"
    assert ours.getsockopt(TCP, FASTOPEN) == 0 and caught(lambda: ours.setsockopt(TCP, FASTOPEN, 1)) == errno.EINVAL
    answers(s, ours)
    return has_syn_data(s)
assert [calls() for _ in range(3)] == [False, True, True]
# With zero, the listener accepts no data in SYNs.
board.setsockopt(TCP, FASTOPEN, 0)
assert not calls()
board.setsockopt(TCP, FASTOPEN, 1)
assert calls()
print("all is well")
