import struct
# The protocol of the board's socket (kiban_attach::entry), without the library.
LOCAL, CONGESTION = ("0.0.0.0", 0), 25
CHANNEL, SET_REMOTE, SET_OPTION, QUERY_OPTION, QUERY_INFO, FATE = 20, 15, 10, 11, 12, 9
OPENED, ENDED = 2, 5

def entry(what, local=None, remote=None, code=0, value=0):
    ends = [(4, end[1], socket.inet_aton(end[0])) if end else (0, 0, b"") for end in (local, remote)]
    families, ports, addresses = zip(*ends)
    return struct.pack("BBHIBB2xHH16s16s", what, code, 0, value, *families, *ports, *addresses)

def by_path():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(60)
    s.connect(os.environ["KIBAN_SOCKETS"])
    return s

def new_channel():
    s = by_path()
    s.send(entry(CHANNEL))
    return s

def over(channel):
    """Gets a connection over a channel."""
    channel.send(entry(CHANNEL))
    _, files, _, _ = socket.recv_fds(channel, 48, 1)
    s = socket.socket(fileno=files[0])
    s.settimeout(60)
    return s

def told(s, request):
    """Sends a request. Returns the answer, or nothing if the board disconnects instead."""
    try:
        s.send(request)
        return s.recv(1000)
    except (ConnectionResetError, BrokenPipeError):
        return b""
