fast = 0x20000000 # MSG_FASTOPEN
name = (socket.AF_INET).to_bytes(2, sys.byteorder) + far[1].to_bytes(2, "big")
name += socket.inet_aton(far[0]) + bytes(8)
message = Message(name, 16, ctypes.pointer(Part(b"x", 1)), 1)
for send in (lambda s: s.sendto(b"x", fast, far), lambda s: s.sendmsg([b"x"], [], fast, far),
             lambda s: call("sendmmsg", s.fileno(), ctypes.byref(message), 1, fast)):
    s = socket.socket()
    assert send(s) == 1
    assert s.getsockname()[0] == "10.9.0.2"
    s.close()
# An unbound listener gets the wildcard address, which belongs to the board.
listener = socket.socket()
listener.listen()
assert listener.getsockname()[0] == "0.0.0.0" and listener.getsockname()[1] != 0
assert str(os.fstat(listener.fileno()).st_ino) not in open("/proc/net/tcp").read().split()
print("all is well")
