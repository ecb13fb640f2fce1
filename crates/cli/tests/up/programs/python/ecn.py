TCP, ECN, ECN_SEEN = socket.IPPROTO_TCP, 8, 16  # TCPI_OPT_ECN, TCPI_OPT_ECN_SEEN

def options(s):
    return s.getsockopt(TCP, socket.TCP_INFO, 104)[5]

def uses_ecn(ours, peer):
    """Returns whether both ends use ECN, and the kernel has received ECN-capable segments."""
    for source, target in (ours, peer), (peer, ours):
        sender = threading.Thread(target=source.sendall, args=(bytes(100000),))
        sender.start()
        assert target.recv(100000, socket.MSG_WAITALL) == bytes(100000)
        sender.join()
    assert options(ours) & ECN == options(peer) & ECN
    return options(peer) & (ECN | ECN_SEEN) == ECN | ECN_SEEN

kernel = socket.create_server(far)
board = socket.create_server(("10.9.0.2", 6000))
ours = socket.create_connection(far)
peer, _ = kernel.accept()
assert uses_ecn(ours, peer), "the board connects"
peer = socket.create_connection(("10.9.0.2", 6000), source_address=("10.9.0.1", 0))
ours, _ = board.accept()
assert uses_ecn(ours, peer), "the kernel connects"
print("all is well")
