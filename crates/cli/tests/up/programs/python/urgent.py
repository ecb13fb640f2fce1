import fcntl, struct
# The peer's listener belongs to the kernel.
listener = socket.create_server(far)
SOCKET, INLINE, OOB, ATMARK = socket.SOL_SOCKET, socket.SO_OOBINLINE, socket.MSG_OOB, 0x8905
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])

def connected(inline=0):
    s = socket.socket()
    s.setsockopt(SOCKET, INLINE, inline)
    s.connect(far)
    peer = listener.accept()[0]
    return s, peer

def at_mark(s):
    return struct.unpack("i", fcntl.ioctl(s, ATMARK, bytes(4)))[0]

def is_urgent(s):
    """Waits for urgent data, as poll(2) and select(2) report it."""
    poll = select.poll()
    poll.register(s, select.POLLPRI)
    return poll.poll(30000)[0][1] & select.POLLPRI and select.select([], [], [s], 0)[2] == [s]

# In both directions: the kernel's behaviour is the model.
for direction in 0, 1:
    ends = connected()
    sender, reader = ends if direction else ends[::-1]
    assert caught(lambda: reader.recv(1, OOB)) == errno.EINVAL, "there is none"
    assert sender.send(b"abU", OOB) == 3
    assert is_urgent(reader)
    assert sender.send(b"cd") == 2
    assert reader.recv(1, OOB | socket.MSG_PEEK) == b"U" and reader.recv(1, OOB) == b"U"
    assert caught(lambda: reader.recv(1, OOB)) == errno.EINVAL, "it has been read"
    assert not at_mark(reader) and reader.recv(9) == b"ab", "a read ends before the mark"
    assert at_mark(reader) and reader.recv(2, socket.MSG_WAITALL) == b"cd" and not at_mark(reader)
    # In line.
    reader.setsockopt(SOCKET, INLINE, 1)
    assert reader.getsockopt(SOCKET, INLINE) == 1
    sender.sendmsg([b"e", b"V"], [], OOB)
    assert is_urgent(reader)
    assert caught(lambda: reader.recv(1, OOB)) == errno.EINVAL, "it is in line"
    assert reader.recv(9) == b"e" and at_mark(reader) and reader.recv(1) == b"V" and not at_mark(reader)
    # A signal goes to the owner.
    fcntl.fcntl(reader, fcntl.F_SETOWN, os.getpid())
    sender.send(b"W", OOB)
    assert signal.sigtimedwait([signal.SIGURG], 30), "SIGURG"
    assert reader.recv(1) == b"W"
    # Many bytes before and after the mark.
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    writer = threading.Thread(target=lambda: (sender.sendall(b"x" * 300000), sender.send(b"U", OOB), sender.sendall(b"y" * 300000)))
    writer.start()
    got = b""
    while len(got) < 600001:
        if at_mark(reader):
            assert len(got) == 300000, "the mark"
        got += reader.recv(65536)
    assert got == b"x" * 300000 + b"U" + b"y" * 300000
    writer.join()

# Set before the socket becomes the board's.
s, peer = connected(1)
peer.send(b"U", OOB)
assert is_urgent(s) and at_mark(s) and s.recv(1) == b"U"
# A signal about the streams above may still be pending.
while signal.sigtimedwait([signal.SIGURG], 0):
    pass
s = socket.socket()
fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())
s.connect(far)
peer = listener.accept()[0]
peer.send(b"U", OOB)
assert signal.sigtimedwait([signal.SIGURG], 30) and s.recv(1, OOB) == b"U"

# A connection inherits the option of its listener.
server = socket.socket()
server.setsockopt(SOCKET, INLINE, 1)
server.bind(("10.9.0.2", 6000))
server.listen()
peer = socket.create_connection(("10.9.0.2", 6000), source_address=("10.9.0.1", 0))
s, _ = server.accept()
assert s.getsockopt(SOCKET, INLINE) == 1
peer.send(b"U", OOB)
assert is_urgent(s) and s.recv(1) == b"U"
print("all is well")
