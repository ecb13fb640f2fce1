def line():
    sys.stdout.flush()
    return sys.stdin.readline()

def begin(to):
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex(to) == errno.EINPROGRESS
    return s

def outcome(s):
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    poll.poll()
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

print("ready")
line()
shared = begin(far)
has_begun, tell = os.pipe()
child = os.fork()
own = begin(nobody if child else far)
if child == 0:
    os.write(tell, b"x")
    for s in own, shared:
        error = outcome(s)
        assert error == 0, error
    assert own.getsockname() != shared.getsockname()
    os._exit(0)
os.read(has_begun, 1)
heard = {}
def asks(name, port, ask):
    s = socket.socket()
    s.bind(("10.9.0.2", port))
    heard[name] = caught(lambda: ask(s))
name, length = ctypes.create_string_buffer(128), ctypes.byref(ctypes.c_uint32(128))
# In Python, getsockname() holds the interpreter lock, so no other thread runs.
threads = [threading.Thread(target=asks, args=arguments) for arguments in (
    ("listen", 6002, lambda s: call("listen", s.fileno(), 5)),
    ("getsockname", 0, lambda s: call("getsockname", s.fileno(), name, length)))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert heard == {"listen": errno.ENETDOWN, "getsockname": errno.ENETDOWN}, heard
print("stopped still")
line()
assert outcome(own) == errno.ECONNREFUSED
assert outcome(shared) == 0 and shared.getpeername() == far
assert os.waitpid(child, 0)[1] == 0
print("all is well")
