# Prints the results of bind() and connect() for addresses of all lengths and families.
import struct

def v4(family, address, port):
    return struct.pack("=H", family) + struct.pack("!H", port) + socket.inet_aton(address) + bytes(8)

def v6(family, address, port):
    name = struct.pack("=H", family) + struct.pack("!HI", port, 0)
    return name + socket.inet_pton(socket.AF_INET6, address) + bytes(4)

for domain in socket.AF_INET, socket.AF_INET6:
    for family in socket.AF_UNSPEC, socket.AF_UNIX, socket.AF_INET, socket.AF_INET6:
        names = {("bind", v4(family, address, 7100)) for address in ("0.0.0.0", "10.9.0.77")}
        names |= {("bind", v6(family, "::", 7100)), ("connect", v4(family, *far))}
        names |= {("connect", v6(family, "::ffff:" + far[0], far[1]))}
        for function, name in sorted(names):
            # Binding to this address fails on the host and is deferred on the board, so it shows the family's check.
            if domain == family == socket.AF_INET and name == v4(family, "10.9.0.77", 7100):
                continue
            for length in 0, 1, 2, 15, 16, 23, 24, 27, 28, 128, 129:
                with socket.socket(domain) as s:
                    result = caught(lambda: call(function, s.fileno(), name + bytes(128), length))
                    again = caught(lambda: call(function, s.fileno(), name + bytes(128), length))
                    print(domain, family, function, name.hex(), length, result, again)
