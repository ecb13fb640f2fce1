import errno, os, select, signal, socket, struct, sys

def line():
    sys.stdout.flush()
    return sys.stdin.readline()

def begin(to, bound=None):
    s = socket.socket()
    if bound:
        s.bind(bound)
    s.setblocking(False)
    error = s.connect_ex(to)
    print(errno.errorcode.get(error, error))
    return s

def outcome(s):
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    poll.poll(20000)
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

far = ("10.9.0.1", 5000)
children = len(os.listdir("/proc/self/task"))
print("ready")
line()
good, bound = begin(far), begin(far, ("10.9.0.2", 5678))
refused, own = begin(("10.9.0.1", 5999)), begin(("10.99.0.1", 5000))
dropped = begin(far)
# epoll reports the result too, even if the wait began before the board replied.
waits = select.epoll()
waits.register(good, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
# No connection is established yet, and select() reports none.
assert select.select([], [good, bound, refused, own], [], 0) == ([], [], [])
assert good.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
for call in (lambda: good.connect(far), lambda: good.getpeername(), lambda: good.recv(1)):
    try:
        call()
        assert False
    except OSError as error:
        print(errno.errorcode[error.errno])
dropped.close()
# A blocking connect() waits at most for SO_SNDTIMEO, and a signal handler interrupts it.
timed = socket.socket()
timed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50000))
print(errno.errorcode[timed.connect_ex(far)])
ended = socket.socket()
def handler(*_):
    raise InterruptedError
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
try:
    ended.connect(far)
except InterruptedError:
    print("EINTR")
signal.setitimer(signal.ITIMER_REAL, 0)
print("stopped still")
line()
assert refused.fileno() >= 0 and outcome(refused) == errno.ECONNREFUSED
refused.close()
events = 0
while not events & select.EPOLLOUT:
    events = dict(waits.poll(20)).get(good.fileno(), 0)
assert outcome(good) == 0
assert outcome(bound) == 0 and bound.getsockname() == ("10.9.0.2", 5678), bound.getsockname()
assert outcome(own) == 0 and own.getpeername() == ("10.99.0.1", 5000), own.getpeername()
for s in good, timed, ended:
    assert outcome(s) == 0
    name = s.getsockname()
    assert name[0] == "10.9.0.2" and name[1] != 0, name
for s in good, bound, own, timed, ended:
    s.setblocking(True)
    s.sendall(b"echo" * 50000)
    got = b""
    while len(got) < 200000:
        got += s.recv(65536)
    assert got == b"echo" * 50000
    s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b""
    s.close()
print("echoed")
# A reset is reported as an error, not as the end of the stream.
line()
s = begin(far)
line()
assert outcome(s) == 0
s.setblocking(True)
s.sendall(b"reset")
try:
    assert s.recv(100) != b"", "a reset"
    assert False
except ConnectionResetError:
    pass
s.close()
# The library leaves no child process and no thread behind.
try:
    os.waitpid(-1, os.WNOHANG)
    assert False
except ChildProcessError:
    pass
assert len(os.listdir("/proc/self/task")) == children
print("all is well")
