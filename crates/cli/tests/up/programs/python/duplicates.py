# Closes an original, and opens another socket, which gets its number.
def reuse(original, make):
    number = original.fileno()
    original.close()
    other = make()
    assert other.fileno() == number
    return other

def connected():
    return socket.create_connection(far, timeout=None)

# Each duplicate remains the stream that it was, however often the number of its original is reused.
original, kept = connected(), []
for _ in range(20):
    kept.append((original.dup(), original.getsockname()))
    original = reuse(original, connected)
    for copy, name in kept:
        assert copy.getsockname() == name and copy.getpeername() == far
for copy, name in kept:
    copy.sendall(b"reset")
    assert caught(lambda: copy.recv(1)) == errno.ECONNRESET
    copy.close()
# Numbers that are reused without duplicates need no records.
for _ in range(100):
    original = reuse(original, connected)
# A duplicate of a stream that this side has finished.
copy = original.dup()
original.shutdown(socket.SHUT_WR)
original = reuse(original, connected)
assert copy.recv(1) == b"" and copy.getpeername() == far
# Listeners, and sockets that are bound, behave in the same way.
listener = socket.create_server(("10.9.0.2", 6005))
bound = socket.socket()
bound.bind(("10.9.0.2", 6006))
kept = [listener.dup(), bound.dup()]
others = [reuse(each, connected) for each in (listener, bound)]
listener, bound = kept
bound.listen()
for each, port in (listener, 6005), (bound, 6006):
    client = socket.create_connection(("10.9.0.2", port), timeout=None)
    stream, peer = each.accept()
    assert peer == client.getsockname() and each.getsockname() == ("10.9.0.2", port)
    for s in stream, client, each:
        s.close()
print("all is well")
