"""Both ends of the tests of `kiban net`: servers of a host, and a program of the guest.

usage: peers.py host        serves at 192.0.2.1 and fd00:1::1 until it is killed; prints "ready"
       peers.py guest       checks what the guest reaches, and what it does not
       peers.py few         checks that the guest reaches a server
       peers.py loopback    checks that the gateway leads to the host's loopback
       peers.py serve       serves one connection at port 8080, for `-t`
       peers.py call PORT   calls a port of the host's loopback, and checks the answer
       peers.py see         tells callers at port 8080, and at 8079 of 127.0.0.1, their addresses
       peers.py seen ADDRESS PORT   connects until an answer arrives, and prints it
       peers.py back        checks what the guest reaches at its own loopback, for `-T` and `-U`
       peers.py many        listens at 1100 ports from 16384 up
       peers.py flood PORT  opens more connections to its loopback than the board allows, and then one more
       peers.py try ADDRESS PORT    uploads until it works
       peers.py tell [PORT] answers datagrams at port 8081, or another, with their sender's address, for `-u`
       peers.py ask ADDRESS PORT    sends datagrams until an answer arrives, and prints it
       peers.py names ADDRESS       resolves a name at a name server
       peers.py resolve ADDRESS     asks a name server over TCP and over UDP, until it answers
       peers.py unserved ADDRESS    asks a name server until its host refuses that
       peers.py watch FILE          checks that a server is reached again and again, until the file exists
       peers.py upload ADDRESS      checks that the guest reaches the server at an address
       peers.py machine PATH [OWN]  is a virtual machine at a socket of the board, for `--qemu-stream`, or with a path of its
                                    own for `--qemu-dgram`: gets its address by DHCP and resolves a name
"""

import errno
import hashlib
import os
import resource
import select
import socket
import struct
import sys
import threading

HOSTS = ["192.0.2.1", "fd00:1::1"]
SILENT = "192.0.2.2"
DIGEST, LOCAL, ECHO, RESET, CLOSED, HELD, SERVED, TOLD = 8000, 8001, 8002, 8003, 8004, 8005, 8080, 8081
GATEWAY = "10.0.2.2"
MEBIBYTES = 16


def content():
    return bytes(range(251)) * (MEBIBYTES * (1 << 20) // 251)


def digest(connection):
    """Reads to the end, and answers with the digest of what it read."""
    seen = hashlib.sha256()
    while data := connection.recv(1 << 16):
        seen.update(data)
    connection.sendall(seen.hexdigest().encode())
    connection.close()


def reset(connection):
    try:
        connection.recv(1)
    except ConnectionResetError:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def hold(connection):
    """Reads nothing, until the peer has closed or reset the connection."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.poll()
    connection.close()


def listen(address, port, serve):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family)

    def accept():
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def datagrams(address, port, answer):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.bind((address, port))

    def serve():
        while True:
            data, peer = sock.recvfrom(1 << 16)
            sock.sendto(answer(data), peer)

    threading.Thread(target=serve, daemon=True).start()


def name_server(query):
    """Answers any question of one name with 192.0.2.1 (RFC 1035 §4.1); others than A have no answer."""
    if 0 not in query[12:-4]:
        return query
    end = query.index(0, 12) + 5
    is_a = query[end - 4 : end - 2] == b"\0\1"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(HOSTS[0])
    counts = struct.pack(">HHHH", 1, int(is_a), 0, 0)
    return query[:2] + b"\x81\x80" + counts + query[12:end] + (record if is_a else b"")


def name_server_over_tcp(connection):
    length = int.from_bytes(connection.recv(2, socket.MSG_WAITALL), "big")
    answer = name_server(connection.recv(length, socket.MSG_WAITALL))
    connection.sendall(struct.pack(">H", len(answer)) + answer)
    connection.close()


def silent_name_server():
    """Answers nothing: neither datagrams nor SYNs, since the queue of connections is full."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
    sockets[0].bind((SILENT, 53))
    sockets.append(socket.create_server((SILENT, 53), backlog=0))
    sockets.append(socket.create_connection((SILENT, 53)))
    return sockets


def host():
    silent = silent_name_server()
    for address in HOSTS + ["127.0.0.53"]:
        listen(address, 53, name_server_over_tcp)
        datagrams(address, 53, name_server)
    for address in HOSTS:
        listen(address, DIGEST, digest)
        datagrams(address, ECHO, lambda data: data[::-1])
    listen(HOSTS[0], RESET, reset)
    listen(HOSTS[0], HELD, hold)
    listen("127.0.0.1", LOCAL, digest)
    listen("127.0.0.1", RESET, reset)
    datagrams("127.0.0.1", ECHO, lambda data: data[::-1])
    print("ready", flush=True)
    threading.Event().wait()
    del silent


def upload(address, port=DIGEST, data=None):
    data = content() if data is None else data
    with socket.create_connection((address, port), timeout=60) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while more := sock.recv(1000):
            answer += more
    assert answer.decode() == hashlib.sha256(data).hexdigest(), (address, answer)


def fails(error, work):
    try:
        work()
    except error as found:
        return found
    raise AssertionError(f"it should have failed with {error}")


def exchange(address, port, data):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(60)
        sock.connect((address, port))
        sock.send(data)
        return sock.recv(1 << 16)


def is_reset(address=HOSTS[0], port=RESET):
    with socket.create_connection((address, port), timeout=60) as sock:
        sock.sendall(b"x")
        sock.recv(1)


def guest():
    for address in HOSTS:
        upload(address)
        assert exchange(address, ECHO, b"abc") == b"cba"
    assert exchange(HOSTS[0], ECHO, bytes(30_000)) == bytes(30_000)
    threads = [threading.Thread(target=upload, args=(HOSTS[0], DIGEST, bytes([n]) * 100_000)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fails(ConnectionRefusedError, lambda: upload(HOSTS[0], CLOSED))
    fails(ConnectionRefusedError, lambda: exchange(HOSTS[0], CLOSED, b"x"))
    fails(ConnectionResetError, is_reset)
    # The host's loopback is not to be reached, neither at the gateway nor at addresses of the guest itself.
    for address in GATEWAY, "127.0.0.1":
        fails(ConnectionRefusedError, lambda: upload(address, LOCAL))
    assert socket.gethostbyname("name.test") == HOSTS[0]
    print("guest: passed", flush=True)


def serve():
    with socket.create_server(("0.0.0.0", SERVED)) as listener:
        digest(listener.accept()[0])


def tell(port=TOLD):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("0.0.0.0", port))
        while True:
            data, peer = sock.recvfrom(1 << 16)
            sock.sendto(peer[0].encode(), peer)


def ask(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.2)
        while True:
            # The guest may not listen yet: then the datagram is lost, or refused.
            try:
                sock.sendto(b"?", (address, port))
                answer, peer = sock.recvfrom(1 << 16)
            except (TimeoutError, ConnectionRefusedError):
                continue
            assert peer == (address, port), peer
            print(answer.decode())
            return


def see():
    def tell(connection):
        connection.sendall(connection.getpeername()[0].removeprefix("::ffff:").encode())
        connection.close()

    with socket.create_server(("", SERVED), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        listen("127.0.0.1", SERVED - 1, tell)
        while True:
            tell(listener.accept()[0])


def seen(address, port):
    while True:
        # The guest may not listen yet.
        try:
            with socket.create_connection((address, port), timeout=60) as sock:
                if answer := sock.recv(100):
                    print(answer.decode())
                    return
        except (ConnectionRefusedError, ConnectionResetError):
            pass


def back():
    # The host serves only IPv4.
    for address in "127.0.0.1", "::1":
        upload(address, 9100)
    assert exchange("127.0.0.1", 9101, b"abc") == b"cba"
    fails(ConnectionResetError, lambda: is_reset("127.0.0.1", 9102))
    # Nothing listens there.
    fails((ConnectionResetError, BrokenPipeError), lambda: upload("127.0.0.1", 9103))
    fails(ConnectionRefusedError, lambda: upload("127.0.0.1", LOCAL))


def many():
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    listeners = [socket.create_server(("127.0.0.1", 0x4000 + number)) for number in range(1100)]
    assert len(listeners) == 1100
    threading.Event().wait()


def scan(address):
    """Waits for more connections than the board lets wait, and still opens another one."""
    waiting = []
    for port in range(1, 4401):
        waiting.append(socket.socket())
        waiting[-1].setblocking(False)
        assert waiting[-1].connect_ex((address, port)) == errno.EINPROGRESS
    upload(HOSTS[0], DIGEST, b"scan")


def flood(port):
    # Of its 64 connections, the board uses half between loopback addresses, and resets the others.
    sockets = []
    for _ in range(100):
        # Some are reset before the call returns.
        try:
            sockets.append(socket.create_connection(("127.0.0.1", port), timeout=60))
        except ConnectionResetError:
            pass
    while len(sockets) > 32:
        for sock in select.select(sockets, [], [], 60)[0]:
            fails(ConnectionResetError, lambda: sock.recv(1))
            sockets.remove(sock)
    upload(HOSTS[0], DIGEST, b"other connections have room")
    for sock in sockets:
        sock.close()
    retry("127.0.0.1", port)


def retry(address, port):
    while True:
        try:
            return upload(address, port, b"retry")
        except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
            pass


def watch(file):
    rounds = 0
    while not os.path.exists(file):
        upload(HOSTS[rounds % 2], DIGEST, b"watch")
        rounds += 1
    print(f"{rounds} rounds", flush=True)


QUERY = b"\x12\x34\1\0\0\1\0\0\0\0\0\0\4name\4test\0\0\1\0\1"


def names(address):
    assert exchange(address, 53, QUERY).endswith(socket.inet_aton(HOSTS[0]))


def ask_for_name(address):
    """Asks again and again, from one port, as resolvers do. Returns the answer, or None if it is refused."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.2)
        sock.connect((address, 53))
        while True:
            try:
                sock.send(QUERY)
                return sock.recv(1 << 16)
            except TimeoutError:
                pass
            except ConnectionRefusedError:
                return None


def resolve(address):
    answer = b""
    while not answer:
        try:
            with socket.create_connection((address, 53), timeout=60) as sock:
                sock.sendall(struct.pack(">H", len(QUERY)) + QUERY)
                while more := sock.recv(1000):
                    answer += more
        except ConnectionRefusedError:
            pass
    assert answer.endswith(socket.inet_aton(HOSTS[0])), answer
    while (answer := ask_for_name(address)) is None:
        pass
    assert answer.endswith(socket.inet_aton(HOSTS[0])), answer


def unserved(address):
    while ask_for_name(address) is not None:
        pass


class Machine:
    """A virtual machine's end of a link: sends and receives frames."""

    BOARD = b"\xff" * 6

    def __init__(self, path, own=None):
        self.mac = b"\x52\x54\0" + os.urandom(3)
        self.address = bytes(4)
        self.path = path
        self.is_stream = own is None
        if self.is_stream:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(path)
        else:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            if os.path.exists(own):
                os.remove(own)
            self.sock.bind(own)
        self.sock.settimeout(60)

    def send(self, kind, packet):
        frame = self.BOARD + self.mac + kind + packet
        if self.is_stream:
            self.sock.sendall(struct.pack(">I", len(frame)) + frame)
        else:
            self.sock.sendto(frame, self.path)

    def receive(self):
        if not self.is_stream:
            return self.sock.recv(1 << 16)
        length = struct.unpack(">I", self.sock.recv(4, socket.MSG_WAITALL))[0]
        return self.sock.recv(length, socket.MSG_WAITALL)

    def exchange(self, address, ports, data):
        """Sends a datagram, and returns the answer to it; answers ARP requests in the meantime."""
        datagram = struct.pack(">HHHH", *ports, 8 + len(data), 0) + data
        header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, 0, 64, 17, 0) + self.address + address
        checksum = 0xFFFF - sum(struct.unpack(">10H", header)) % 0xFFFF
        self.send(b"\x08\0", header[:10] + struct.pack(">H", checksum) + header[12:] + datagram)
        while True:
            frame = self.receive()
            if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\1" and frame[38:42] == self.address:
                arp = b"\0\1\x08\0\6\4\0\2" + self.mac + self.address + frame[22:32]
                self.send(b"\x08\x06", arp)
            elif frame[12:14] == b"\x08\0" and frame[34:38] == struct.pack(">HH", *reversed(ports)):
                self.BOARD = frame[6:12]
                return frame[42:]

    def dhcp(self, kind, options=b""):
        fixed = b"\1\1\6\0wxyz" + bytes(20) + self.mac + bytes(202) + b"\x63\x82\x53\x63"
        reply = self.exchange(b"\xff" * 4, (68, 67), fixed + b"\x35\1" + kind + options + b"\xff")
        assert reply[:8] == b"\2\1\6\0wxyz" and reply[28:34] == self.mac, reply
        at, found = 240, {}
        while reply[at] != 255:
            found[reply[at]] = reply[at + 2 : at + 2 + reply[at + 1]]
            at += 2 + reply[at + 1]
        return reply[16:20], found


def machine(path, own=None):
    its = Machine(path, own)
    offered, options = its.dhcp(b"\1")
    leased, options = its.dhcp(b"\3", b"\x36\4" + options[54] + b"\x32\4" + offered)
    assert leased == offered and options[53] == b"\5", options
    its.address = leased
    answer = its.exchange(options[6][:4], (5353, 53), QUERY)
    assert answer.endswith(socket.inet_aton(HOSTS[0])), answer
    mtu = int.from_bytes(options[26], "big")
    print(f"{socket.inet_ntoa(leased)} via {socket.inet_ntoa(options[3])} mtu {mtu}")


part = sys.argv[1]
if part == "call":
    upload("127.0.0.1", int(sys.argv[2]))
elif part == "ask":
    ask(sys.argv[2], int(sys.argv[3]))
elif part == "tell":
    tell(*map(int, sys.argv[2:]))
elif part == "seen":
    seen(sys.argv[2], int(sys.argv[3]))
elif part == "scan":
    scan(sys.argv[2])
elif part == "flood":
    flood(int(sys.argv[2]))
elif part == "try":
    retry(sys.argv[2], int(sys.argv[3]))
elif part == "watch":
    watch(sys.argv[2])
elif part == "names":
    names(sys.argv[2])
elif part == "resolve":
    resolve(sys.argv[2])
elif part == "unserved":
    unserved(sys.argv[2])
elif part == "upload":
    upload(sys.argv[2], DIGEST, b"upload" * 10_000)
elif part == "few":
    upload(HOSTS[0], DIGEST, b"few")
elif part == "machine":
    machine(*sys.argv[2:])
elif part == "loopback":
    upload(GATEWAY, LOCAL, b"loopback")
else:
    {"host": host, "guest": guest, "serve": serve, "see": see, "back": back, "many": many}[part]()
