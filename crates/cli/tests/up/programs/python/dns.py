"""A name server over UDP and TCP at the address and port that are given. It knows the address of hosts in lab.example;
answers about long and many.lab.example do not fit into a datagram; alias.lab.example is an alias. Some addresses of 192.0.2.0 have
names, not all of them valid. It prints a line for each query."""

import socket
import struct
import sys
import threading

AT = (sys.argv[1], int(sys.argv[2]))

POINTERS = {
    "77.2.0.192.in-addr.arpa": ["www.lab.example"],
    "78.2.0.192.in-addr.arpa": ["$(reboot).lab.example", "two.lab.example", "second.example"],
    "79.2.0.192.in-addr.arpa": ["-rf.lab.example", "a b.lab.example"],
    "7.7.0.0." + 20 * "0." + "8.b.d.0.1.0.0.2.ip6.arpa": ["six.lab.example"],
}


def encoded(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def answer(query, is_tcp):
    number, _, _, _, _, additional = struct.unpack("!HHHHHH", query[:12])
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    kind = struct.unpack("!H", query[at + 1 : at + 3])[0]
    name = ".".join(labels).lower()
    print("tcp" if is_tcp else "udp", name, kind, "edns" if additional else "", flush=True)
    question = query[12 : at + 5]
    is_known = (name.endswith(".lab.example") and name != "none.lab.example") or name in POINTERS
    is_cut = name in ("long.lab.example", "many.lab.example") and not is_tcp
    records = []
    if is_known and not is_cut and kind == 1:
        records = [struct.pack("!HHHIH4B", 0xC00C, 1, 1, 60, 4, 192, 0, 2, last) for last in (77, 78)]
        if name == "many.lab.example":
            records += [records[0][:-2] + struct.pack("!H", at) for at in range(1000, 1398)]
    if is_known and not is_cut and kind == 28:
        address = socket.inet_pton(socket.AF_INET6, "2001:db8::77")
        records = [struct.pack("!HHHIH", 0xC00C, 28, 1, 60, 16) + address]
    if name == "alias.lab.example" and kind in (1, 28):
        target = encoded("www.lab.example")
        records = [record.replace(b"\xc0\x0c", target, 1) for record in records]
        records.insert(0, struct.pack("!HHHIH", 0xC00C, 5, 1, 60, len(target)) + target)
    for target in map(encoded, POINTERS.get(name, []) if kind == 12 else []):
        records.append(struct.pack("!HHHIH", 0xC00C, 12, 1, 60, len(target)) + target)
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
