import array, termios

def wait_for(s, events, wanted):
    poll = select.poll()
    poll.register(s, events)
    while not any(event & wanted for _, event in poll.poll()):
        pass

# Connects, without asking for the outcome.
def begin(to):
    while True:
        s = socket.socket()
        s.setblocking(False)
        if s.connect_ex(to) == errno.EINPROGRESS:
            return s
        s.close()

def outcome(s):
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

# The stream has carried data and been reset before the program asks for the outcome of its connect. Each number from 0
# to 10 is also that of a reason for which the board could not connect.
for number in range(12):
    data = bytes([number]) + b"echo"
    s = begin(far)
    wait_for(s, select.POLLOUT, select.POLLOUT)
    assert s.send(data) == len(data)
    waiting = array.array("i", [0])
    while waiting[0] < len(data):
        wait_for(s, select.POLLIN, select.POLLIN)
        fcntl.ioctl(s.fileno(), termios.FIONREAD, waiting)
    assert s.send(b"reset") == 5
    wait_for(s, 0, select.POLLHUP)
    assert outcome(s) == 0, number
    assert s.recv(100) == data and caught(lambda: s.recv(100)) == errno.ECONNRESET, number
    s.close()
# A connect that fails reports the reason, once, and leaves nothing to read.
s = begin(nobody)
wait_for(s, 0, select.POLLHUP)
assert outcome(s) == errno.ECONNREFUSED and outcome(s) == 0
assert caught(s.getpeername) == errno.ENOTCONN and s.recv(100) == b""
s.close()
print("all is well")
