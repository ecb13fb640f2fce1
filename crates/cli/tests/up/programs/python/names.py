"""Looks names up on a board. The name server is dns.py, at the only server of resolv.conf."""

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
assert addresses("www", family=socket.AF_INET) == ALL[:2]
assert addresses("www", family=socket.AF_INET6) == ALL[2:]
named = socket.getaddrinfo("www", "http", socket.AF_INET, socket.SOCK_STREAM, 0, socket.AI_CANONNAME)
assert [found[3] for found in named] == ["www.lab.example", ""] and named[0][4][1] == 80, named
fails("none", socket.EAI_NONAME)
fails("elsewhere.example.", socket.EAI_NONAME)
assert addresses("localhost", family=socket.AF_INET) == ["127.0.0.1"]
assert addresses("192.0.2.1") == ["192.0.2.1"]
print("all names found")
