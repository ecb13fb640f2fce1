import struct

def v4(family, address, port):
    return struct.pack("=H", family) + struct.pack("!H", port) + socket.inet_aton(address) + bytes(8)

# Without its last 4 bytes, the scope identifier, this is the address of RFC 2133.
def v6(address, port):
    name = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 0)
    return name + socket.inet_pton(socket.AF_INET6, address) + bytes(4)

def bind(s, name):
    call("bind", s.fileno(), name, len(name))

def connect(s, name):
    call("connect", s.fileno(), name, len(name))

# The ports on which the host listens.
def ports_of_host():
    rows = [row.split() for file in ("tcp", "tcp6") for row in open("/proc/net/" + file).readlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}

refused = ("127.0.0.1", 1)

def without_family(s):
    bind(s, v4(socket.AF_UNSPEC, "0.0.0.0", 7001))
def after_a_failed_connect(s):
    s.bind(("", 7002))
    assert caught(lambda: s.connect(refused)) == errno.ECONNREFUSED
def after_a_connection_on_the_host(s):
    s.bind(("", 7003))
    with socket.create_server(("127.0.0.1", 0)) as server:
        s.connect(server.getsockname())
        server.accept()[0].close()
    connect(s, v4(socket.AF_UNSPEC, "0.0.0.0", 0))
def disconnected(s):
    s.bind(("", 7004))
    connect(s, v4(socket.AF_UNSPEC, "0.0.0.0", 0))
    assert s.getsockname() == ("0.0.0.0", 7004)
def disconnected_from_the_board(s):
    s.bind(("", 7005))
    s.connect(far)
    connect(s, v4(socket.AF_UNSPEC, "0.0.0.0", 0))
    assert s.getsockname()[1] == 7005
def after_a_failed_connect_with_any_port(s):
    s.bind(("", 0))
    assert caught(lambda: s.connect(refused)) == errno.ECONNREFUSED
def short(s):
    bind(s, v6("::", 7006)[:24])
def mapped(s):
    bind(s, v6("::ffff:0.0.0.0", 7007)[:24])
def reserved(_):
    return socket.socket(fileno=call("rresvport", ctypes.byref(ctypes.c_int(1023))))
def reserved_and_connected(_):
    s = reserved(_)
    assert caught(lambda: s.connect(refused)) == errno.ECONNREFUSED
    return s

ipv6 = (short, mapped)
for prepare in (without_family, after_a_failed_connect, after_a_connection_on_the_host, disconnected,
                disconnected_from_the_board, after_a_failed_connect_with_any_port, reserved, reserved_and_connected,
                *ipv6):
    listener = socket.socket(socket.AF_INET6 if prepare in ipv6 else socket.AF_INET)
    listener = prepare(listener) or listener
    listener.listen()
    port = listener.getsockname()[1]
    assert port != 0 and port not in ports_of_host(), (prepare, listener)
    client = socket.create_connection(("10.9.0.2", port))
    assert listener.accept()[1][1] == client.getsockname()[1], prepare
    client.close()
    listener.close()

# A listener on a loopback address remains on the host.
listener = socket.create_server(("127.0.0.1", 0))
assert listener.getsockname()[1] in ports_of_host()
listener.close()

# A connection goes over the board, and has the port that libc has reserved.
s = socket.socket(socket.AF_INET6)
connect(s, v6("::ffff:10.9.0.1", 5000)[:24])
assert s.getsockname()[0] == "::ffff:10.9.0.2"
s.close()
s = reserved(None)
port = s.getsockname()[1]
s.connect(far)
assert s.getsockname() == ("10.9.0.2", port)
s.close()
print("all is well")
