# Connections whose peer does not answer any more fail with ETIMEDOUT, as in tcp(7).
import subprocess
TCP, SOCKET = socket.IPPROTO_TCP, socket.SOL_SOCKET
listener = socket.create_server(far)

limit = TCP, socket.TCP_USER_TIMEOUT, 1000
reads, polls, writes = [connected(limit) for _ in range(3)]
# TCP_USER_TIMEOUT also limits how long keep-alive probes go unanswered.
keeps = connected((SOCKET, socket.SO_KEEPALIVE, 1), (TCP, socket.TCP_KEEPIDLE, 1), (TCP, socket.TCP_USER_TIMEOUT, 2000))
# Without it, the number of probes decides.
probes = (TCP, socket.TCP_KEEPIDLE, 1), (TCP, socket.TCP_KEEPINTVL, 1), (TCP, socket.TCP_KEEPCNT, 2)
probed = connected((SOCKET, socket.SO_KEEPALIVE, 1), *probes)
# From now on, the kernel drops what comes to its address.
subprocess.run(["ip", "addr", "del", "10.9.0.1/24", "dev", "kiban0"], check=True)
for s, _ in reads, polls:
    s.sendall(b"x")
assert caught(lambda: reads[0].recv(1)) == errno.ETIMEDOUT
poll = select.poll()
poll.register(polls[0], select.POLLIN)
assert poll.poll()[0][1] & select.POLLHUP
assert polls[0].getsockopt(SOCKET, socket.SO_ERROR) == errno.ETIMEDOUT
assert caught(lambda: writes[0].sendall(bytes(64 << 20))) == errno.ETIMEDOUT
for s in keeps, probed:
    assert caught(lambda: s[0].recv(1)) == errno.ETIMEDOUT
print("all is well")
