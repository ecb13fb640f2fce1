import resource
# Connections to one listener take no places of another listener's or of the program's own connections.
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)

def listening(port):
    s = socket.socket()
    s.bind(("10.9.0.2", port))
    s.listen(256)
    return s

def peer_of(listener):
    return socket.create_connection(listener.getsockname(), 30, source_address=("10.9.0.1", 0))

crowded, other = listening(6100), listening(6101)
kernel = socket.create_server(("10.9.0.1", 6200))
crowd = []
for n in range(200):
    try:
        crowd.append(peer_of(crowded))
    except ConnectionResetError:
        # Refused: the reset may arrive before connect() returns.
        assert n >= 112, n
served = []
for n in range(112):
    served.append(crowded.accept()[0])
crowded.setblocking(False)
assert caught(crowded.accept) == errno.EAGAIN, "seven eighths of 128"
for n in range(8):
    peer = peer_of(other)
    s = other.accept()[0]
    s.sendall(b"x")
    assert peer.recv(1) == b"x"
    crowd.extend((peer, s))
own = socket.create_connection(("10.9.0.1", 6200), 30)
own.sendall(b"y")
assert kernel.accept()[0].recv(1) == b"y"
print("all is well")
