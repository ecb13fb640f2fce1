import errno, os, select, socket, subprocess, sys

far, nobody = ("10.9.0.1", 5000), ("10.9.0.1", 5999)

def caught(call):
    try:
        return call()
    except OSError as error:
        return error.errno

def kernel_calls(port):
    words = "import socket; s = socket.create_connection(('10.9.0.2', %d), timeout=20); s.sendall(b'hello'); s.recv(1)"
    return subprocess.Popen([sys.executable, "-c", words % port], env={})

def echoes(s):
    s.sendall(b"echo")
    assert s.recv(4, socket.MSG_WAITALL) == b"echo"

# A refused socket can be retried any number of times, and connects once there is a listener.
s = socket.socket()
for _ in range(3):
    assert caught(lambda: s.connect(nobody)) == errno.ECONNREFUSED
    assert caught(s.getpeername) == errno.ENOTCONN
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
s.connect(far)
assert caught(lambda: s.connect(far)) == errno.EISCONN
echoes(s)
s.close()
# The same with a non-blocking socket and poll().
s = socket.socket()
s.setblocking(False)
for _ in range(3):
    error = s.connect_ex(nobody)
    if error == errno.EINPROGRESS:
        select.select([], [s], [], 20)
        error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    assert error == errno.ECONNREFUSED, error
assert not os.get_blocking(s.fileno()), "it stays as it was set"
# A socket refused on the board can then connect to an address of the host.
listener = socket.create_server(("127.0.0.1", 0))
s.setblocking(True)
s.connect(listener.getsockname())
peer, _ = listener.accept()
s.sendall(b"own")
assert peer.recv(3) == b"own"
for each in s, peer, listener:
    each.close()
# The socket keeps the port to which it was bound.
s = socket.socket()
s.bind(("10.9.0.2", 5555))
for _ in range(2):
    assert caught(lambda: s.connect(nobody)) == errno.ECONNREFUSED
s.connect(far)
assert s.getsockname() == ("10.9.0.2", 5555) and s.getpeername() == far
s.close()

# Reading from a listener fails, and loses none of its pending connections.
listener = socket.create_server(("10.9.0.2", 6001))
copy = listener.dup()
child = kernel_calls(6001)
select.select([listener], [], [], 20)
for call in (lambda: listener.recv(1), lambda: os.read(listener.fileno(), 1), lambda: listener.recvmsg(10),
             lambda: copy.recv(1)):
    assert caught(call) == errno.ENOTCONN
stream, peer = listener.accept()
assert peer[0] == "10.9.0.1"
assert stream.recv(5, socket.MSG_WAITALL) == b"hello"
stream.close()
assert child.wait() == 0
copy.close()
listener.close()

# The port that the board chooses is reported before and after listen(), and for a client.
for address in "", "10.9.0.2":
    for asks in True, False:
        listener = socket.socket()
        listener.bind((address, 0))
        if asks:
            port = listener.getsockname()[1]
            assert port != 0 and listener.getsockname() == (address or "0.0.0.0", port)
            assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0
            assert caught(lambda: listener.recv(1)) == errno.ENOTCONN
        listener.listen()
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        assert not asks or port == listener.getsockname()[1]
        port = listener.getsockname()[1]
        other = socket.socket()
        other.bind((address, port))
        assert caught(other.listen) == errno.EADDRINUSE
        other.close()
        child = kernel_calls(port)
        stream, _ = listener.accept()
        assert stream.getsockname() == ("10.9.0.2", port)
        assert stream.recv(5, socket.MSG_WAITALL) == b"hello"
        stream.close()
        assert child.wait() == 0
        listener.close()
    s = socket.socket()
    s.bind((address, 0))
    port = s.getsockname()[1]
    assert port != 0
    s.connect(far)
    assert s.getsockname() == ("10.9.0.2", port)
    echoes(s)
    s.close()
# A socket bound to an address that is not the board's belongs to the system, and keeps its port.
s = socket.socket()
s.bind(("10.9.0.1", 0))
port = s.getsockname()[1]
assert port != 0
s.listen()
assert s.getsockname() == ("10.9.0.1", port)
s.close()

# A reset is reported as an error, once, whichever end finished first.
s = socket.create_connection(far, timeout=20)
s.sendall(b"late reset")
s.shutdown(socket.SHUT_WR)
assert caught(lambda: s.recv(1)) == errno.ECONNRESET
assert s.recv(1) == b""
s.close()
# A new connection with the same addresses is a different stream.
s = socket.socket()
s.bind(("10.9.0.2", 5556))
s.connect(far)
s.sendall(b"late reset")
s.shutdown(socket.SHUT_WR)
assert caught(lambda: s.recv(1)) == errno.ECONNRESET
s.close()
s = socket.socket()
s.bind(("10.9.0.2", 5556))
s.connect(far)
echoes(s)
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b"" and s.recv(1) == b""
s.close()
print("all is well")
