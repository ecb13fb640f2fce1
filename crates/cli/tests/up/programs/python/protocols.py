mptcp, sctp, smc = 262, 132, 43
shim = ctypes.CDLL(os.environ["SHIM"], use_errno=True)
for domain in socket.AF_INET, socket.AF_INET6:
    for kind in socket.SOCK_STREAM, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC:
        assert caught(lambda: socket.socket(domain, kind, sctp)) == errno.EPROTONOSUPPORT
assert caught(lambda: socket.socket(smc, socket.SOCK_STREAM)) == errno.EAFNOSUPPORT
# Other types remain the host's.
socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP).close()
# A socket that the library has not seen, for example one that was inherited, is recognised by its protocol.
inherited = shim.socket(socket.AF_INET, socket.SOCK_STREAM, sctp)
assert inherited >= 0
with socket.socket(fileno=inherited) as s:
    assert s.proto == sctp
    for use in (lambda: s.connect(far), lambda: s.bind(("10.9.0.2", 6008)), lambda: s.listen()):
        assert caught(use) == errno.EPROTONOSUPPORT
# MPTCP falls back to TCP, as with a peer that does not have it.
for protocol in socket.IPPROTO_TCP, mptcp:
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    s.connect(far)
    assert s.getsockname()[0] == "10.9.0.2"
    s.close()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    listener.bind(("", 6009))
    listener.listen()
    client = socket.create_connection(("10.9.0.2", 6009))
    assert listener.accept()[1][0] == "10.9.0.2"
    client.close()
    listener.close()
print("all is well")
