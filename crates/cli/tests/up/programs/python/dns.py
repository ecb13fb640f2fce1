"""A name server over UDP and TCP at the address and port that are given. It knows the address of hosts in lab.example;
answers about long.lab.example do not fit into a datagram. It prints a line for each query."""

import socket
import struct
import sys
import threading

AT = (sys.argv[1], int(sys.argv[2]))


def answer(query, is_tcp):
    number, _, _ = struct.unpack("!HHH", query[:6])
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    kind = struct.unpack("!H", query[at + 1 : at + 3])[0]
    name = ".".join(labels).lower()
    print("tcp" if is_tcp else "udp", name, kind, flush=True)
    question = query[12 : at + 5]
    is_known = name.endswith(".lab.example") and name != "none.lab.example"
    is_cut = name == "long.lab.example" and not is_tcp
    records = []
    if is_known and not is_cut and kind == 1:
        records = [struct.pack("!HHHIH4B", 0xC00C, 1, 1, 60, 4, 192, 0, 2, last) for last in (77, 78)]
    if is_known and not is_cut and kind == 28:
        address = socket.inet_pton(socket.AF_INET6, "2001:db8::77")
        records = [struct.pack("!HHHIH", 0xC00C, 28, 1, 60, 16) + address]
    flags = 0x8180 | (0x0200 if is_cut else 0) | (0 if is_known else 3)
    return struct.pack("!HHHHHH", number, flags, 1, len(records), 0, 0) + question + b"".join(records)


def serve_tcp(listener):
    while True:
        stream, _ = listener.accept()
        with stream:
            length = struct.unpack("!H", stream.recv(2, socket.MSG_WAITALL))[0]
            reply = answer(stream.recv(length, socket.MSG_WAITALL), True)
            stream.sendall(struct.pack("!H", len(reply)) + reply)


listener = socket.create_server(AT)
threading.Thread(target=serve_tcp, args=[listener], daemon=True).start()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(AT)
print("ready", flush=True)
while True:
    query, peer = udp.recvfrom(4096)
    udp.sendto(answer(query, False), peer)
