"""Connects two network namespaces by TUN devices and delays each packet; prints a line when it forwards.

Usage: delay.py MILLISECONDS OTHER_NAMESPACE, in the first namespace. Both devices are named `wire`.
"""
import collections, fcntl, os, select, struct, subprocess, sys, time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000


def tun(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


delay, other = float(sys.argv[1]) / 1000, sys.argv[2]
far = tun("far")
subprocess.run(["ip", "link", "set", "far", "name", "wire", "netns", other], check=True)
near = tun("wire")
print("ready", flush=True)
waiting = collections.deque()
while True:
    left = max(0, waiting[0][0] - time.monotonic()) if waiting else None
    readable, _, _ = select.select([near, far, 0], [], [], left)
    if 0 in readable and not os.read(0, 1):
        break
    for device in (near, far):
        if device in readable:
            try:
                packet = os.read(device, 65536)
            except OSError:
                continue
            waiting.append((time.monotonic() + delay, far if device == near else near, packet))
    while waiting and waiting[0][0] <= time.monotonic():
        _, device, packet = waiting.popleft()
        try:
            os.write(device, packet)
        except OSError:
            pass
