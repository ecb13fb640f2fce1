def high(file):
    return socket.socket(fileno=fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 64))
kept = [socket.socket() for _ in range(3)]
assert caught(lambda: high(kept[0]).connect(far)) == errno.EMFILE
assert caught(lambda: high(kept[1]).bind(("10.9.0.2", 6003))) == errno.EMFILE
assert caught(lambda: high(kept[2]).listen()) == errno.EMFILE
# Sockets of the host's network need no slot in the table.
listener = high(socket.create_server(("127.0.0.1", 0)))
own = high(socket.create_connection(listener.getsockname()))
assert own.getpeername() == listener.getsockname()
# A duplicate is recognised by its file, not by its number.
s = socket.create_connection(far)
copy = high(s)
assert copy.getpeername() == far and copy.getsockname() == s.getsockname()
# accept() fails if the new descriptor could not be distinguished from a socket of the host.
listener = socket.create_server(("10.9.0.2", 6004))
client = socket.create_connection(("10.9.0.2", 6004))
while (filler := os.dup(0)) < 63:
    pass
assert caught(listener.accept) == errno.EMFILE
print("all is well")
