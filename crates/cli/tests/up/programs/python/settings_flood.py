import struct
# Programs that change the settings of their datagram sockets without end do not fill the board's memory.
BATCH, BATCHES, DONTWAIT = 256, 4000, 0x40

class Many(ctypes.Structure):
    """A message of sendmmsg(2)."""
    _fields_ = [("message", Message), ("bytes", ctypes.c_uint)]

def bound(port):
    """Returns a datagram socket of the board, without the library."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(os.environ["KIBAN_SOCKETS"])
    s.send(struct.pack("8B2B2x2H16s16s", 14, *[0] * 7, 4, 0, port, 0, bytes([10, 9, 0, 2]), b""))
    assert s.recv(48)[1] == 0, "it is bound"
    return s

def resident():
    """Returns the bytes of the board's memory."""
    with open(f"/proc/{board}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

sockets = [bound(7000 + n) for n in range(24)]
board = struct.unpack("3i", sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
packets = [struct.pack("2B46x", 3, n % 2) for n in range(BATCH)]
parts = (Part * BATCH)(*[Part(packet, 48) for packet in packets])
messages = (Many * BATCH)(*[Many(Message(parts=ctypes.pointer(part), count=1)) for part in parts])
begin = most = resident()
for n in range(BATCHES):
    for s in sockets:
        libc.sendmmsg(s.fileno(), messages, BATCH, DONTWAIT)
    if n % 10 == 0:
        most = max(most, resident())
assert most - begin < 8 << 20, f"{most - begin} bytes more"
print("all is well")
