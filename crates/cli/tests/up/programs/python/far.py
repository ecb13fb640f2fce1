import socket, struct, threading
def serve(stream):
    while data := stream.recv(65536):
        if data == b"reset":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            break
        if data == b"late reset":
            assert stream.recv(1) == b""
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            break
        if data == b"big":
            assert stream.recv(1) == b""
            stream.sendall(bytes(3 << 20))
            break
        stream.sendall(data)
    stream.close()
listener = socket.create_server(("10.9.0.1", 5000), backlog=100)
while True:
    stream, _ = listener.accept()
    threading.Thread(target=serve, args=(stream,)).start()
