"""Serves an IEC 61850 model without data over MMS on the loopback, for tests (scripts/mms/run)."""

import socket
import sys

from pyiec61850 import pyiec61850 as iec

HOST = "127.0.0.1"
# Another process may take a port between its choice and its use.
ATTEMPTS = 20

print("here", flush=True)
model = iec.IedModel_create("kiban")
device = iec.LogicalDevice_create("LD", model)
iec.LogicalNode_create("LLN0", device)
for _ in range(ATTEMPTS):
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    server = iec.IedServer_create(model)
    iec.IedServer_setLocalIpAddress(server, HOST)
    iec.IedServer_start(server, port)
    if iec.IedServer_isRunning(server):
        break
    iec.IedServer_destroy(server)
else:
    sys.exit("mms: no port is free")
print(f"listening at {port}", flush=True)
sys.stdin.read()
iec.IedServer_stop(server)
