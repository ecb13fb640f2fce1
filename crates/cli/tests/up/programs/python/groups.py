group, port = "239.1.2.3", 5007
IP, SIX = socket.IPPROTO_IP, socket.IPPROTO_IPV6

def member(group, interface="0.0.0.0"):
    return socket.inet_aton(group) + socket.inet_aton(interface)

# The sender is the kernel's.
kernel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
kernel.bind(("10.9.0.1", 0))
kernel.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.9.0.1"))

def udp(address=("", port), family=socket.AF_INET, shares=0):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shares)
    s.bind(address)
    return s

def receives(s, target=group):
    """Returns whether a socket receives a datagram to a group. A datagram to the socket itself follows it."""
    kernel.sendto(b"news", (target, port))
    kernel.sendto(b"end", ("10.9.0.2", port))
    heard = s.recvfrom(9)
    assert heard[1] == kernel.getsockname()
    if heard[0] == b"news":
        assert s.recv(9) == b"end"
    return heard[0] == b"news"

s = udp()
assert not receives(s)
join, leave = socket.IP_ADD_MEMBERSHIP, socket.IP_DROP_MEMBERSHIP
s.setsockopt(IP, join, member(group))
assert receives(s) and not receives(s, "239.9.9.9")
# With an interface: by its address, and with a number that the board does not have.
s.setsockopt(IP, join, member("239.1.2.4", "10.9.0.2"))
assert receives(s, "239.1.2.4")
with_number = member(group) + (7).to_bytes(4, sys.byteorder)
for option, value, number in [
    (join, member(group), errno.EADDRINUSE), (leave, member("239.9.9.9"), errno.EADDRNOTAVAIL),
    (join, member("10.9.0.1"), errno.EINVAL), (join, member(group)[:7], errno.EINVAL),
    (join, member("239.9.9.9", "10.9.0.7"), errno.ENODEV), (join, with_number, errno.ENODEV),
]:
    assert caught(lambda: s.setsockopt(IP, option, value)) == number, (option, value, number)
for number in range(2, 20):
    s.setsockopt(IP, join, member(f"239.0.0.{number}"))
assert caught(lambda: s.setsockopt(IP, join, member("239.0.0.20"))) == errno.ENOBUFS
s.setsockopt(IP, leave, member(group))
assert not receives(s) and receives(s, "239.1.2.4")
# A connected socket leaves the groups that it has joined before.
s.connect(kernel.getsockname())
s.setsockopt(IP, leave, member("239.0.0.2"))
assert caught(lambda: s.setsockopt(IP, leave, member("239.0.0.2"))) == errno.EADDRNOTAVAIL
s.close()

# Sockets that share the port get a copy each. The group is left with the last one.
while caught(lambda: udp().close()) == errno.EADDRINUSE:
    pass
first, second = udp(shares=1), udp(shares=1)
for each in first, second:
    each.setsockopt(IP, join, member(group))
for left in (first, second), (second,):
    kernel.sendto(b"news", (group, port))
    for each in left:
        assert each.recv(9) == b"news"
    first.close()
second.close()
while caught(lambda: udp().close()) == errno.EADDRINUSE:
    pass
s = udp()
assert not receives(s)
s.close()

# IPv6.
six = udp(("::", port + 1), socket.AF_INET6)
wanted = socket.inet_pton(socket.AF_INET6, "ff02::77") + bytes(4)
six.setsockopt(SIX, socket.IPV6_JOIN_GROUP, wanted)
assert caught(lambda: six.setsockopt(SIX, socket.IPV6_JOIN_GROUP, wanted)) == errno.EADDRINUSE
kernels = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
# The kernel's address must pass duplicate address detection first.
while True:
    caught(lambda: kernels.sendto(b"six", ("ff02::77", port + 1, 0, socket.if_nametoindex("kiban0"))))
    if select.select([six], [], [], 0.1)[0]:
        break
assert six.recv(9) == b"six"
six.setsockopt(SIX, socket.IPV6_LEAVE_GROUP, wanted)
assert caught(lambda: six.setsockopt(SIX, socket.IPV6_LEAVE_GROUP, wanted)) == errno.EADDRNOTAVAIL
print("all is well")
