def high(file):
    return socket.socket(fileno=fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 64))
kept = [socket.socket() for _ in range(3)]
assert caught(lambda: high(kept[0]).connect(far)) == errno.EMFILE
assert caught(lambda: high(kept[1]).bind(("10.9.0.2", 6003))) == errno.EMFILE
assert caught(lambda: high(kept[2]).listen()) == errno.EMFILE
# Sockets of this host need no place in the table.
listener = high(socket.create_server(("127.0.0.1", 0)))
own = high(socket.create_connection(listener.getsockname()))
assert own.getpeername() == listener.getsockname()
# A duplicate is recognised by its file.
s = socket.create_connection(far)
copy = high(s)
assert copy.getpeername() == far and copy.getsockname() == s.getsockname()
# No stream is accepted that could not be told from one of this host.
listener = socket.create_server(("10.9.0.2", 6004))
client = socket.create_connection(("10.9.0.2", 6004))
while (filler := os.dup(0)) < 63:
    pass
assert caught(listener.accept) == errno.EMFILE
print("all is well")
