import socket
streams = [socket.create_connection(("10.9.0.2", 6000), timeout=20) for _ in range(24)]
done = 0
for number, stream in enumerate(streams):
    stream.sendall(b"call" * number)
    stream.shutdown(socket.SHUT_WR)
    got = b""
    while data := stream.recv(65536):
        got += data
    done += got == b"call" * number
print(done)
