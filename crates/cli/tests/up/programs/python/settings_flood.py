import struct
# Programs that change the settings of their datagram sockets without end do not fill the board's memory.
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
packets = [struct.pack("2B46x", 3, value) for value in (0, 1)]
begin = resident()
children = []
for own in sockets[:12], sockets[12:]:
    children.append(os.fork())
    if not children[-1]:
        for n in range(20_000):
            for s in own:
                s.send(packets[n % 2])
        os._exit(0)
# The board has taken all packets of a program that could send them, except for those in the socket's buffer.
most = begin
while children:
    if os.waitpid(children[0], os.WNOHANG)[0]:
        children.pop(0)
    most = max(most, resident())
    select.select([], [], [], 0.01)
assert most - begin < 8 << 20, f"{most - begin} bytes more"
print("all is well")
