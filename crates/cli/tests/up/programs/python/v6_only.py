# IPV6_V6ONLY (ipv6(7)): whether a socket at `::` takes IPv4, too. Sockets bound to the peer's addresses are the kernel's.
LEVEL, ONLY = socket.IPPROTO_IPV6, socket.IPV6_V6ONLY
TCP, UDP, FOUR, SIX = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.AF_INET, socket.AF_INET6
wildcard = {FOUR: "0.0.0.0", SIX: "::"}
near = {FOUR: "10.9.0.2", SIX: "fd00:9::2"}
peers = {FOUR: "10.9.0.1", SIX: "fd00:9::1"}

def new(kind, domain, only=None):
    s = socket.socket(domain, kind)
    s.settimeout(60)
    if only is not None:
        s.setsockopt(LEVEL, ONLY, only)
    return s

def opened(s, address, port):
    """Binds and, because bind() has no errors with TCP, listens."""
    s.bind((address, port))
    if s.type == TCP:
        s.listen()
    return s

def comes(s, domain):
    """Returns whether what the peer sends over a family arrives."""
    peer = new(s.type, domain)
    peer.bind((peers[domain], 0))
    if caught(lambda: peer.connect((near[domain], s.getsockname()[1]))) == errno.ECONNREFUSED:
        return False
    peer.send(b"x")
    if s.type == TCP:
        accepted, name = s.accept()
        if s.family == SIX:
            assert accepted.getsockopt(LEVEL, ONLY) == s.getsockopt(LEVEL, ONLY), "inherited"
        assert accepted.recv(1) == b"x" and name[0].endswith(peers[domain])
        return True
    # With nobody at the port, an ICMP error arrives.
    peer.settimeout(0.01)
    while not select.select([s], [], [], 0)[0]:
        if caught(lambda: peer.recv(1)) == errno.ECONNREFUSED:
            return False
    return s.recv(1) == b"x"

for port, kind in (7100, TCP), (7110, UDP):
    # As Debian's nginx and sshd do: a socket for each family, at the same port.
    for first, second in (FOUR, SIX), (SIX, FOUR):
        pair = [opened(new(kind, domain, 1 if domain == SIX else None), wildcard[domain], port)
                for domain in (first, second)]
        for s in pair:
            assert s.getsockname()[:2] == (wildcard[s.family], port)
            assert comes(s, s.family), s
            if s.family == SIX:
                assert s.getsockopt(LEVEL, ONLY) == 1
                assert caught(lambda: s.setsockopt(LEVEL, ONLY, 0)) == errno.EINVAL, "it is too late"
            s.close()
        port += 1
    # Alone, it takes no IPv4.
    s = opened(new(kind, SIX, 1), "::", port)
    assert comes(s, SIX) and not comes(s, FOUR)
    s.close()
    # Without the option, a socket has both families, so that no other may have the IPv4 addresses.
    for only in None, 0:
        s = opened(new(kind, SIX, only), "::", port + 1)
        assert s.getsockopt(LEVEL, ONLY) == 0 and comes(s, SIX) and comes(s, FOUR)
        assert caught(lambda: opened(new(kind, FOUR), "0.0.0.0", port + 1)) == errno.EADDRINUSE
        s.close()
        port += 1
    s = opened(new(kind, FOUR), "0.0.0.0", port + 1)
    assert caught(lambda: opened(new(kind, SIX), "::", port + 1)) == errno.EADDRINUSE
    # IPv4-mapped addresses.
    only = new(kind, SIX, 1)
    assert caught(lambda: only.bind(("::ffff:10.9.0.2", port + 2))) == errno.EINVAL
    assert caught(lambda: only.connect(("::ffff:10.9.0.1", 5000))) == errno.ENETUNREACH

# An unbound socket's option can be changed; a bound one's cannot.
s = new(TCP, SIX, 1)
s.setsockopt(LEVEL, ONLY, 0)
s.bind(("::", 0))
assert caught(lambda: s.setsockopt(LEVEL, ONLY, 1)) == errno.EINVAL
print("all is well")
