import asyncio, errno, os, select, socket, sys, threading

far = ("10.9.0.1", 5000)
kernel = os.environ.pop("PEER")

# Addresses, and data in both directions.
s = socket.create_connection(far, timeout=20)
assert s.getsockname()[0] == "10.9.0.2" and s.getpeername() == far, (s.getsockname(), s.getpeername())
assert s.family == socket.AF_INET
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
s.sendall(b"echo")
assert s.recv(4, socket.MSG_WAITALL) == b"echo"
# A duplicated descriptor refers to the same stream and reports the same addresses.
copy = s.dup()
assert copy.getpeername() == far
# A forked child can use the stream.
pid = os.fork()
if pid == 0:
    copy.sendall(b"from the child")
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
got = b""
while len(got) < 14:
    got += s.recv(14 - len(got))
assert got == b"from the child", got
copy.close()
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b"", "an end in order is an end"
s.close()

# A connect to a port without a listener fails, blocking and non-blocking.
try:
    socket.create_connection(("10.9.0.1", 5999), timeout=20)
    assert False
except ConnectionRefusedError:
    pass
s = socket.socket()
s.setblocking(False)
error = s.connect_ex(("10.9.0.1", 5999))
if error == errno.EINPROGRESS:
    select.select([], [s], [], 20)
    error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
assert error == errno.ECONNREFUSED, error
s.close()

# A reset is reported as an error, not as the end of the stream.
s = socket.create_connection(far, timeout=20)
s.sendall(b"reset")
try:
    assert s.recv(100) != b"", "a reset"
    assert False
except ConnectionResetError:
    pass
s.close()

# After shutdown(SHUT_WR), all data from the peer can still be read, however slowly.
s = socket.create_connection(far, timeout=20)
s.sendall(b"big")
s.shutdown(socket.SHUT_WR)
total = 0
while data := s.recv(4096):
    total += len(data)
assert total == 3 << 20, total
s.close()

# A stream whose connect failed has no data to read.
s = socket.socket()
s.setblocking(False)
if s.connect_ex(("10.9.0.1", 5999)) == errno.EINPROGRESS:
    select.select([], [s], [], 20)
    try:
        s.recv(10)
        assert False
    except ConnectionRefusedError:
        pass
s.close()

# Sockets that do not belong to the board are left to the system.
listener = socket.create_server(("127.0.0.1", 0))
own = socket.create_connection(listener.getsockname(), timeout=20)
peer, _ = listener.accept()
own.sendall(b"own")
assert peer.recv(3) == b"own"

# A listener that uses poll(), and two dozen clients at once.
async def main():
    async def echo(reader, writer):
        assert writer.get_extra_info("peername")[0] == "10.9.0.1"
        writer.write(await reader.read())
        await writer.drain()
        writer.close()
    server = await asyncio.start_server(echo, "0.0.0.0", 6000)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", kernel, env={}, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0 and out == b"24\n", out
    # Non-blocking streams in asyncio, which uses epoll.
    streams = [await asyncio.open_connection(*far) for _ in range(24)]
    for number, (reader, writer) in enumerate(streams):
        writer.write(b"echo" * (1000 + number))
    for number, (reader, writer) in enumerate(streams):
        assert await reader.readexactly(4 * (1000 + number)) == b"echo" * (1000 + number)
        writer.close()
asyncio.run(asyncio.wait_for(main(), 50))
print("all is well")
