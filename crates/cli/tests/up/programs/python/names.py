"""Looks names up on a board. The name server is dns.py, at the only server of resolv.conf."""

import ctypes
import socket


def addresses(name, **more):
    return [found[4][0] for found in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM, **more)]


def fails(name, number):
    try:
        addresses(name)
    except socket.gaierror as error:
        assert error.errno == number, error
    else:
        raise AssertionError(f"{name} must fail")


ALL = ["192.0.2.77", "192.0.2.78", "2001:db8::77"]
assert addresses("www.lab.example") == ALL
assert addresses("www") == ALL, "the search list"
assert addresses("long.lab.example.") == ALL, "over TCP"
assert len(set(addresses("many.lab.example."))) == 401, "as many as there are"
assert len(set(socket.gethostbyname_ex("many.lab.example.")[2])) == 400
assert addresses("www", family=socket.AF_INET) == ALL[:2]
assert addresses("www", family=socket.AF_INET6) == ALL[2:]
named = socket.getaddrinfo("www", "http", socket.AF_INET, socket.SOCK_STREAM, 0, socket.AI_CANONNAME)
assert [found[3] for found in named] == ["www.lab.example", ""] and named[0][4][1] == 80, named
fails("none", socket.EAI_NONAME)
fails("elsewhere.example.", socket.EAI_NONAME)
assert addresses("localhost", family=socket.AF_INET) == ["127.0.0.1"]
assert addresses("192.0.2.1") == ["192.0.2.1"]

# gethostbyname_r
FOURS = ALL[:2]
assert socket.gethostbyname("www") == "192.0.2.77"
assert socket.gethostbyname_ex("www.lab.example.") == ("www.lab.example", [], ALL[:2])
assert socket.gethostbyname_ex("www") == ("www.lab.example", [], FOURS)
assert socket.gethostbyname_ex("alias") == ("www.lab.example", ["alias.lab.example"], FOURS)
# gethostbyaddr_r, and the reverse lookup of getnameinfo. Names that no host can have are ignored.
assert socket.gethostbyaddr("192.0.2.77") == ("www.lab.example", [], ["192.0.2.77"])
assert socket.gethostbyaddr("192.0.2.78") == ("two.lab.example", ["second.example"], ["192.0.2.78"])
assert socket.gethostbyaddr("2001:db8::77") == ("six.lab.example", [], ["2001:db8::77"])
assert socket.gethostbyaddr("127.0.0.1")[0] == "localhost", "/etc/hosts"
for address in "192.0.2.79", "192.0.2.80":
    try:
        socket.gethostbyaddr(address)
    except socket.herror as error:
        assert error.errno == 1, error
    else:
        raise AssertionError(f"{address} has no name")
assert socket.getnameinfo(("192.0.2.77", 80), 0) == ("www.lab.example", "http")
assert socket.getnameinfo(("192.0.2.77", 80), socket.NI_NOFQDN) == ("www", "http")
assert socket.getnameinfo(("2001:db8::77", 80), socket.NI_NUMERICSERV) == ("six.lab.example", "80")
assert socket.getnameinfo(("192.0.2.79", 80), 0) == ("192.0.2.79", "http")
assert socket.getnameinfo(("192.0.2.77", 80), socket.NI_NUMERICHOST) == ("192.0.2.77", "http")
try:
    socket.getnameinfo(("192.0.2.79", 80), socket.NI_NAMEREQD)
except socket.gaierror as error:
    assert error.errno == socket.EAI_NONAME, error

libc = ctypes.CDLL(None, use_errno=True)
libc.__h_errno_location.restype = ctypes.POINTER(ctypes.c_int)
herror = lambda: libc.__h_errno_location()[0]


class Host(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("aliases", ctypes.POINTER(ctypes.c_char_p)), ("family", ctypes.c_int),
                ("length", ctypes.c_int), ("addresses", ctypes.POINTER(ctypes.c_void_p))]


def host(found):
    entry, addresses = found.contents, []
    while entry.addresses[len(addresses)]:
        addresses.append(ctypes.string_at(entry.addresses[len(addresses)], entry.length))
    return entry.name.decode(), [socket.inet_ntop(entry.family, address) for address in addresses]


# The functions with static data, and buffers that are too small.
for name in "gethostbyname", "gethostbyname2", "gethostbyaddr":
    getattr(libc, name).restype = ctypes.POINTER(Host)
assert host(libc.gethostbyname(b"www")) == ("www.lab.example", FOURS)
assert host(libc.gethostbyname2(b"www", socket.AF_INET6)) == ("www.lab.example", ALL[2:])
assert host(libc.gethostbyaddr(bytes([192, 0, 2, 77]), 4, socket.AF_INET)) == ("www.lab.example", ["192.0.2.77"])
assert not libc.gethostbyname(b"none.lab.example.") and herror() == 1
assert not libc.gethostbyaddr(bytes([192, 0, 2, 80]), 4, socket.AF_INET) and herror() == 1
entry, result, error = Host(), ctypes.POINTER(Host)(), ctypes.c_int()
for room, wanted in [(room, 34) for room in range(0, 56)] + [(1024, 0)]:
    space = ctypes.create_string_buffer(room + 1)
    given = ctypes.byref(entry), space, ctypes.c_size_t(room), ctypes.byref(result), ctypes.byref(error)
    assert libc.gethostbyname_r(b"www", *given) == wanted, room
    assert bool(result) == (wanted == 0) and error.value == (-1 if wanted else 0)
    assert space.raw[room:] == b"\0", "nothing is written beyond the room"

# The resolver's functions. h_errno: 1 no such name, 4 no such record.
answer = ctypes.create_string_buffer(2000)


def count(number):
    """Returns the number of records in the answer, or h_errno."""
    return int.from_bytes(answer.raw[6:8], "big") if number > 0 else -herror()


class State(ctypes.Structure):
    _fields_ = [("words", ctypes.c_long * 128)]


state = State()
assert libc.__res_ninit(ctypes.byref(state)) == 0
for prefix in "", "__":
    bare = lambda name, *more: getattr(libc, f"{prefix}res_{name}")(*more, answer, 2000)
    with_state = lambda name, *more: getattr(libc, f"{prefix}res_n{name}")(ctypes.byref(state), *more, answer, 2000)
    for form in bare, with_state:
        assert count(form("query", b"www.lab.example", 1, 1)) == 2
        assert count(form("query", b"www", 1, 1)) == -1, "no search list"
        assert count(form("query", b"none.lab.example", 1, 1)) == -1
        assert count(form("query", b"www.lab.example", 1, 16)) == -4
        assert count(form("search", b"www", 1, 28)) == 1
        assert count(form("search", b"nowhere.example", 1, 16)) == -4, "the search list has the name without the record"
        assert count(form("querydomain", b"www", b"lab.example", 1, 1)) == 2
        # A query with EDNS, and one with capital letters.
        for name, more in (b"www", b"\0\0\x29\x10\0\0\0\0\0\0\0"), (b"wWw", b""):
            query = b"\x12\x34\1\0\0\1\0\0\0\0\0" + bytes([bool(more)]) + b"\3" + name
            query += b"\3lab\7example\0\0\1\0\1" + more
            assert count(form("send", query, len(query))) == 2 and answer.raw[:2] == b"\x12\x34"
# What does not fit is lost, and the answer says so.
length = libc.res_query(b"www.lab.example", 1, 1, answer, 40)
assert length > 40 and answer.raw[2] & 2, length
print("all names found")
