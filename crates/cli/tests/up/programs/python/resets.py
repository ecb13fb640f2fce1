buffer = ctypes.create_string_buffer(16)
empty_first = (Part * 2)(Part(None, 0), Part(ctypes.cast(buffer, ctypes.c_char_p), 16))
messages = (Message * 2)(Message(None, 0, empty_first, 2), Message(None, 0, empty_first, 2))
end, pipe = os.pipe()
ways = {
    "readv": lambda s: os.readv(s.fileno(), [bytearray(0), bytearray(8)]),
    "preadv2": lambda s: os.preadv(s.fileno(), [bytearray(0), bytearray(8)], -1),
    "recvmsg": lambda s: s.recvmsg_into([bytearray(0), bytearray(8)])[0],
    "recvmmsg": lambda s: call("recvmmsg", s.fileno(), messages, 2, 0x10000, None), # MSG_WAITFORONE
    "splice": lambda s: os.splice(s.fileno(), pipe, 100),
}
for name, read in ways.items():
    s = socket.create_connection(far, timeout=None)
    s.sendall(b"reset")
    assert caught(lambda: read(s)) == errno.ECONNRESET, name
    s.close()
    # The end of a stream is not reported as an error.
    s = socket.create_connection(far, timeout=None)
    s.sendall(b"x")
    assert read(s) == 1 or messages[0].done == 1, name
    s.shutdown(socket.SHUT_WR)
    assert read(s) == 0 or messages[0].done == 0, name
    s.close()
# Options that ask for protection are refused, both before and after the socket is connected.
options = [(socket.IPPROTO_TCP, 14), (socket.IPPROTO_TCP, 31), (socket.IPPROTO_TCP, 32), (socket.IPPROTO_TCP, 38),
           (socket.IPPROTO_IP, 21), (socket.IPPROTO_IP, 17), (socket.IPPROTO_IPV6, 73)]
for s in socket.socket(), socket.create_connection(far):
    for level, option in options:
        assert caught(lambda: s.setsockopt(level, option, bytes(256))) == errno.ENOPROTOOPT, (level, option)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print("all is well")
