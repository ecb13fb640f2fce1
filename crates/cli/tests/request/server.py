"""Web servers and name servers for lab_request.rs; prints a line when all listen.

Ports  8001 answers at once, 8002 after 300 ms, 8003 with 2 MB, 8004 once per connection, 8005 with
       TCP_NODELAY, but 45 ms between header and body; 8443 TLS 1.3,
       8444 TLS after 300 ms, 8445 TLS 1.2 with a certificate that is longer than an initial window
Names  10.77.31.2 answers at once, .3 never, .4 after 300 ms, .5 only A, .6 fails after 100 ms; web.lab has the address .2, two.lab has
       .9 first. .2 refuses names below no.lab after 100 ms.
"""
import socket, socketserver, ssl, struct, sys, threading, time
from http.server import BaseHTTPRequestHandler

folder = sys.argv[1]


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        port = self.server.server_address[1]
        if port == 8002:
            time.sleep(0.3)
        body = b"x" * (2_000_000 if port == 8003 else 100)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if port == 8004:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if port == 8005:
            time.sleep(0.045)
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Web(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass


class Immediate(Web):
    def finish_request(self, request, address):
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().finish_request(request, address)


class Secure(Web):
    def finish_request(self, request, address):
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.server_address[1] == 8444:
            time.sleep(0.3)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        name = "cert"
        if self.server_address[1] == 8445:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            name = "long"
        context.load_cert_chain(f"{folder}/{name}.pem", f"{folder}/{name}.key")
        with context.wrap_socket(request, server_side=True) as secured:
            self.RequestHandlerClass(secured, address, self)


def names(last):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("10.77.31.%d" % last, 53))

    def answer(query, peer):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        question, kind = query[12 : at + 5], struct.unpack(">H", query[at + 1 : at + 3])[0]
        name = ".".join(labels)
        addresses = {"web.lab": [2], "two.lab": [9, 2]}.get(name)
        if last == 3 or (last == 5 and kind != 1):
            return
        if last == 4:
            time.sleep(0.3)
        if addresses is None or last == 6:
            time.sleep(0.1)
        found = addresses if kind == 1 and addresses and last != 6 else []
        code = 2 if last == 6 else 0 if addresses else 3
        head = query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(found), 0, 0)
        records = b"".join(
            b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 9, 4) + bytes([10, 77, 31, one]) for one in found
        )
        sock.sendto(head + question + records, peer)

    def serve():
        while True:
            query, peer = sock.recvfrom(512)
            threading.Thread(target=answer, args=(query, peer), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()


for last in (2, 3, 4, 5, 6):
    names(last)
for port in (8001, 8002, 8003, 8004, 8005, 8443, 8444, 8445):
    server = (Secure if port > 8400 else Immediate if port == 8005 else Web)(("0.0.0.0", port), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
