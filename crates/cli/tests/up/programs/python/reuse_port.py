service = ("10.9.0.2", 6000)
SOCKET, PORT = socket.SOL_SOCKET, socket.SO_REUSEPORT

def listener(shares=1):
    s = socket.socket()
    s.setsockopt(SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(SOCKET, PORT, shares)
    s.bind(service)
    s.listen(64)
    return s

def calls(count):
    """Connects from the kernel."""
    peers = {}
    for _ in range(count):
        peer = socket.create_connection(service, 30, source_address=("10.9.0.1", 0))
        peers[peer.getsockname()] = peer
    return peers

def waiting(s):
    """Accepts the connections that wait."""
    s.setblocking(False)
    accepted = {}
    try:
        while True:
            stream, name = s.accept()
            accepted[name] = stream
    except BlockingIOError:
        return accepted

# Several listeners, one of them in another process, one in another thread.
first, second = listener(), []
thread = threading.Thread(target=lambda: second.append(listener()))
thread.start()
thread.join()
second = second[0]
assert first.getsockopt(SOCKET, PORT) == 1 == second.getsockopt(SOCKET, PORT)
ours, theirs = socket.socketpair()
child = os.fork()
if not child:
    third = listener()
    theirs.send(b"ready")
    while (stream := third.accept()[0]).recv(1) != b"e":
        stream.sendall(b"third")
    os._exit(0)
assert ours.recv(5) == b"ready"
# Without the option, on either side, the address is in use.
assert caught(lambda: listener(0)) == errno.EADDRINUSE

def spread(count):
    """Returns the connections of each listener."""
    peers = calls(count)
    for peer in peers.values():
        peer.sendall(b"x")
    ends = [{}, {}, {}]
    while sum(len(found) for found in ends) < count:
        for s, found in zip((first, second), ends):
            found.update(waiting(s))
        for name, peer in peers.items():
            if select.select([peer], [], [], 0)[0] and name not in ends[2]:
                assert peer.recv(5, socket.MSG_WAITALL) == b"third"
                ends[2][name] = peer
    assert set(peers) == set(ends[0]) | set(ends[1]) | set(ends[2]), "each connection has one listener"
    return peers, ends

peers, ends = spread(90)
assert all(len(found) > 5 for found in ends), [len(found) for found in ends]
for found in ends[:2]:
    for name, stream in found.items():
        assert stream.recv(1) == b"x" and stream.getpeername() == name
        stream.close()
        assert peers[name].recv(1) == b"", "an accepted connection ends in order"
for peer in peers.values():
    peer.close()

# The process ends; its listener gets no more connections.
def end_third():
    for _ in range(1000):
        with socket.create_connection(service, 30, source_address=("10.9.0.1", 0)) as peer:
            peer.sendall(b"e")
            select.select([first, second, peer], [], [])
            if not waiting(first) and not waiting(second):
                return os.waitpid(child, 0)
assert end_third()[1] == 0

# A listener that is closed resets the connections that it has not accepted, with or without data.
peers = calls(40)
for peer in list(peers.values())[:20]:
    peer.sendall(b"x")
assert select.select([second], [], [], 30)[0], "some wait there"
second.close()
accepted, reset = {}, set()
while len(accepted) + len(reset) < 40:
    accepted.update(waiting(first))
    for name, peer in peers.items():
        if name not in reset and select.select([peer], [], [], 0)[0]:
            assert caught(lambda: peer.recv(1)) == errno.ECONNRESET
            reset.add(name)
assert accepted and reset and not reset & set(accepted), (len(accepted), len(reset))

# Once the last listener is closed, the port is free.
first.close()
while caught(lambda: listener(0)) == errno.EADDRINUSE:
    pass
print("all is well")
