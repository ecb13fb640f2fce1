import subprocess
# The addresses of sockets that a program has not opened itself: after exec, and passed by another process.
client, service = ("10.9.0.1", 6200), ("10.9.0.2", 6100)
TELLS = f"""
import errno, socket
def tell(s):
    assert s.getpeername() == {client} and s.getsockname() == {service}, (s.getpeername(), s.getsockname())
    assert s.family == socket.AF_INET and s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    s.sendall(s.recv(1))
"""
RESET = """
try:
    s.recv(1)
    print("it has ended in order")
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
"""

def run(program, passed, **more):
    command = ["python3", "-c", TELLS + program]
    return subprocess.run(command, pass_fds=passed, stdout=subprocess.PIPE, text=True, check=True, **more).stdout

def accepted(listener):
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    peer.bind(client)
    peer.connect(service)
    return peer, listener and listener.accept()[0]

def reset(peer):
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    peer.close()

listener = socket.socket()
listener.bind(service)
listener.listen()
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

# As sshd does it: the accepted socket is the standard input of another program.
peer, s = accepted(listener)
peer.sendall(b"x")
run("tell(socket.socket(fileno=0))", (), stdin=s)
assert peer.recv(1) == b"x"
# A reset is not mistaken for an orderly close.
peer.sendall(b"x")
thread = threading.Thread(target=lambda: (peer.recv(1), reset(peer)))
thread.start()
assert run("s = socket.socket(fileno=0); tell(s)" + RESET, (), stdin=s) == "ECONNRESET\n"
thread.join()
s.close()

# A listener that is inherited accepts connections.
number = listener.fileno()
program = f"s, name = socket.socket(fileno={number}).accept(); assert name == {client}; tell(s)"
peer, _ = accepted(None)
peer.sendall(b"x")
run(program, (number,))
assert peer.recv(1) == b"x"
reset(peer)

# A descriptor that is passed over a Unix socket.
ours, theirs = socket.socketpair()
peer, s = accepted(listener)
socket.send_fds(ours, [b"."], [s.fileno()])
s.close()
peer.sendall(b"x")
number = theirs.fileno()
run(f"tell(socket.socket(fileno=socket.recv_fds(socket.socket(fileno={number}), 1, 1)[1][0]))", (number,))
assert peer.recv(1) == b"x"
reset(peer)

# A socket that has connected.
server = socket.create_server(far)
s = socket.create_connection(far)
program = f"s = socket.socket(fileno=0); print(s.getpeername(), s.getsockname() == {s.getsockname()})"
assert run(program, (), stdin=s) == f"{far} True\n"
# A Unix socket is not mistaken for a stream of the board.
program = "s = socket.socket(fileno=0); print(repr(s.getpeername()), s.family.name)"
assert run(program, (), stdin=ours) == "'' AF_UNIX\n"
print("all is well")
