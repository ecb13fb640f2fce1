# Over a channel, a client reaches only sockets of which it has descriptors.
TCP = socket.IPPROTO_TCP
NODELAY, KEEPALIVE = 1, 2

def token(s):
    """Reads the token without the library, which shows the program its own value of the option."""
    number = {"x86_64": 55, "aarch64": 209}[os.uname().machine]
    value, length = ctypes.c_uint64(), ctypes.c_uint32(8)
    call("syscall", number, s.fileno(), socket.SOL_SOCKET, 47, ctypes.byref(value), ctypes.byref(length))
    return struct.pack("Q", value.value)

listener = socket.socket()
listener.bind(("10.9.0.2", 6100))
listener.listen()
peer = socket.create_connection(listener.getsockname(), 30, source_address=("10.9.0.1", 0))
s = listener.accept()[0]
kernel = socket.create_server(("10.9.0.1", 6200))
opened = socket.create_connection(kernel.getsockname(), 30)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("10.9.0.2", 6300))
channel = new_channel()
tokens = [token(file) for file in (listener, s, opened, u)]
assert len(set(tokens)) == 4 and bytes(8) not in tokens
others = [b"", bytes(8)]

for stream in (s, opened):
    ends, own = (stream.getsockname(), stream.getpeername()), token(stream)
    stream.setsockopt(TCP, socket.TCP_NODELAY, 1)
    change = entry(SET_OPTION, *ends, code=NODELAY, value=0)
    query = entry(QUERY_OPTION, *ends, code=NODELAY)
    for other in others + [its for its in tokens if its != own]:
        told(over(channel), change + other)
        assert stream.getsockopt(TCP, socket.TCP_NODELAY) == 1, "another cannot change it"
        assert told(over(channel), query + other)[4:8] == bytes(4), "another cannot query it"
        assert len(told(over(channel), entry(QUERY_INFO, *ends) + other)) == 48
    assert told(over(channel), query + own)[4:8] == struct.pack("I", 1)
    assert len(told(over(channel), entry(QUERY_INFO, *ends) + own)) > 48
    told(over(channel), change + own)
    assert stream.getsockopt(TCP, socket.TCP_NODELAY) == 0
    # A client that can connect by path needs no token.
    told(by_path(), entry(SET_OPTION, *ends, code=NODELAY, value=1))
    assert stream.getsockopt(TCP, socket.TCP_NODELAY) == 1

change = entry(SET_OPTION, listener.getsockname(), code=KEEPALIVE, value=1)
for other in others + tokens[1:]:
    told(over(channel), change + other)
    assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
told(over(channel), change + tokens[0])
assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1

change = entry(SET_REMOTE, u.getsockname(), ("10.9.0.1", 6301))
for other in others + tokens[:3]:
    assert told(over(channel), change + other)[0] == ENDED
assert told(over(channel), change + tokens[3])[0] == OPENED
# The program's own value of the option is not the token.
u.setsockopt(socket.SOL_SOCKET, 47, 1000)
assert token(u) == tokens[3] and u.getsockopt(socket.SOL_SOCKET, 47) == -1
print("all is well")
