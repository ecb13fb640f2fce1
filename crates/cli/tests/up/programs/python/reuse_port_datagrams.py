service = ("10.9.0.2", 6000)
SOCKET, PORT = socket.SOL_SOCKET, socket.SO_REUSEPORT

def bound(shares=1):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(SOCKET, PORT, shares)
    s.bind(service)
    return s

def peer():
    """Returns a socket of the kernel."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("10.9.0.1", 0))
    return s

def taker(peer, message=b"x"):
    """Sends a datagram. Returns the socket that has received it, or None if it is that of the other process."""
    peer.sendto(message, service)
    ready = select.select([first, second, peer], [], [], 30)[0]
    assert len(ready) == 1, ready
    if ready == [peer]:
        assert peer.recvfrom(9) == (b"third", service)
        return None
    assert ready[0].recvfrom(9) == (message, peer.getsockname())
    return ready[0]

# Three sockets share a port, one of them in another process.
first, second = bound(), bound()
assert first.getsockopt(SOCKET, PORT) == 1
ours, theirs = socket.socketpair()
child = os.fork()
if not child:
    third = bound()
    theirs.send(b"ready")
    while True:
        message, name = third.recvfrom(9)
        third.sendto(b"third", name)
        if message == b"end":
            os._exit(0)
assert ours.recv(5) == b"ready"
# Without the option, on either side, the address is in use.
assert caught(lambda: bound(0)) == errno.EADDRINUSE

# Each flow has one socket, and each socket has some of the flows.
peers = [peer() for _ in range(60)]
takers = [taker(s) for s in peers]
assert [taker(s) for s in peers] == takers
for s in first, second, None:
    assert takers.count(s) > 3, [takers.count(s) for s in (first, second, None)]

# A connected socket receives from its peer only.
of_second = [s for s, taken in zip(peers, takers) if taken is second]
of_first = [s for s, taken in zip(peers, takers) if taken is first]
second.connect(of_first[0].getsockname())
assert second.getpeername() == of_first[0].getsockname() and caught(first.getpeername) == errno.ENOTCONN
assert taker(of_first[0]) is second
assert all(taker(s) is not second for s in of_second)
second.send(b"back")
assert of_first[0].recvfrom(9) == (b"back", service)

# The process ends, and its socket is no longer among those that share the address.
of_third = next(s for s in peers[1:] if s is not of_first[0] and taker(s) is None)
assert taker(of_third, b"end") is None
assert os.waitpid(child, 0)[1] == 0
others = [s for s in peers if s is not of_first[0]]
number = 0
while not select.select([first], [], [], 0.1)[0]:
    number += 1
    of_third.sendto(b"%d" % number, service)
# On a busy machine, several datagrams may be on the way.
while first.recvfrom(9) != (b"%d" % number, of_third.getsockname()):
    pass
assert {taker(s) for s in others} == {first}

# Once the last one is closed, the port is free.
first.close()
second.close()
while caught(lambda: bound(0)) == errno.EADDRINUSE:
    pass
print("all is well")
