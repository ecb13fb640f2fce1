# A server whose children wait with epoll for connections to a listener that they share.
listener = socket.create_server(("10.9.0.2", 6100))
listener.setblocking(False)
into, out = os.pipe()
ends, end = os.pipe()
children = []
for _ in range(2):
    children.append(os.fork())
    if children[-1]:
        continue
    os.close(end)
    poller = select.epoll()
    poller.register(listener.fileno(), select.EPOLLIN)
    poller.register(ends, select.EPOLLIN)
    while True:
        ready = [fd for fd, _ in poller.poll()]
        if ends in ready:
            # The event that the board has stopped does not come again.
            if ready != [ends]:
                os._exit(1)
            # The listener's registration can still be changed and removed.
            poller.modify(listener.fileno(), select.EPOLLIN)
            poller.unregister(listener.fileno())
            os._exit(0)
        caught(listener.accept)
        os.write(out, b"x")
print("ready", flush=True)
# Each child sees that the board has stopped.
seen = b""
while len(seen) < 2:
    seen += os.read(into, 2)
os.close(end)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
print("all is well")
