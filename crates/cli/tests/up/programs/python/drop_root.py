import encodings.idna, linecache, traceback
# A program that drops root, or enters another root directory, keeps the board, also in other processes.
service, nobody_user = ("10.9.0.2", 6100), 65534
TCP = socket.IPPROTO_TCP

def accepted(listener):
    peer = socket.create_connection(listener.getsockname(), 30, source_address=("10.9.0.1", 0))
    return peer, listener.accept()[0]

def in_child(drop, program):
    """Runs a program in a child process that has dropped root."""
    child = os.fork()
    if child == 0:
        try:
            drop()
            program()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return lambda: os.waitpid(child, 0)[1]

def set_user():
    os.setgroups([])
    os.setgid(nobody_user)
    os.setuid(nobody_user)

def enter_root():
    empty = os.path.abspath("empty")
    os.makedirs(empty, exist_ok=True)
    os.chroot(empty)
    os.chdir("/")

listener = socket.socket()
listener.bind(service)
listener.listen()
kernel = socket.create_server(("10.9.0.1", 6200))

def uses_board(port):
    # As an nginx worker, with a listener that it has inherited.
    peer, s = accepted(listener)
    for option in (socket.TCP_NODELAY, socket.TCP_CORK):
        s.setsockopt(TCP, option, 1)
        assert s.getsockopt(TCP, option) == 1
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 8)
    assert s.getsockopt(TCP, socket.TCP_INFO, 1)[0] == 1, "established"
    assert s.getsockopt(TCP, socket.TCP_MAXSEG) > 536
    s.setsockopt(TCP, socket.TCP_CORK, 0)
    s.sendall(b"x")
    assert peer.recv(1) == b"x"
    # New sockets.
    s = socket.create_connection(("10.9.0.1", 6200), 30)
    assert s.getsockname()[0] == "10.9.0.2"
    own = socket.socket()
    own.bind(("10.9.0.2", port))
    own.listen()
    accepted(own)
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(("10.9.0.2", port))
    u.connect(("10.9.0.1", 6201))
    assert u.getsockname() == ("10.9.0.2", port)
    datagrams.connect(("10.9.0.1", 6201))
    assert datagrams.getsockname()[0] == "10.9.0.2"
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex(("10.9.0.1", 6200)) in (0, errno.EINPROGRESS)
    select.select([], [s], [])
    assert s.getpeername() == ("10.9.0.1", 6200)

# A socket from before belongs to the same user.
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("10.9.0.2", 6300))
if caught(lambda: os.setresuid(-1, nobody_user, -1)) is None:
    assert os.geteuid() == nobody_user
    os.seteuid(0)
    # Many processes use the channel at the same time.
    for drop, port in ((set_user, 6400), (enter_root, 6420)):
        begun = [in_child(drop, lambda: uses_board(port + n)) for n in range(8)]
        assert [end() for end in begun] == [0] * 8, drop

    # The channel lasts over exec.
    web = socket.create_server(("10.9.0.1", 6202))
    web.settimeout(60)
    end = in_child(set_user, lambda: os.execvp("curl", ["curl", "-s", "http://10.9.0.1:6202/"]))
    peer, name = web.accept()
    assert name[0] == "10.9.0.2"
    while not peer.recv(1000).endswith(b"\r\n\r\n"):
        pass
    peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
    peer.close()
    assert end() == 0

    # A program that has closed it fails, and a file with its number is not mistaken for it.
    def closes():
        set_user()
        os.closerange(3, 1024)
        for _ in range(256):
            os.open("/dev/null", os.O_RDONLY)
        assert caught(lambda: socket.create_connection(("10.9.0.1", 6200), 30)) == errno.EACCES
    assert in_child(lambda: None, closes)() == 0

    # An invalid request ends only the channel on which it comes.
    def breaks():
        set_user()
        found = [n for n in range(200, 256) if caught(lambda: os.fstat(n)) != errno.EBADF]
        channel = socket.socket(fileno=found[0])
        assert len(found) == 1 and channel.family == socket.AF_UNIX
        os.write(channel.fileno(), b"x" * 48)
        os.close(2)  # The library says there that the board is gone.
        assert caught(lambda: socket.create_connection(("10.9.0.1", 6200), 30)) == errno.ENETDOWN
    for descriptor in range(200, 256):
        caught(lambda: os.close(descriptor))
    assert in_child(lambda: None, breaks)() == 0
    assert in_child(set_user, lambda: uses_board(6500))() == 0
print("all is well")
