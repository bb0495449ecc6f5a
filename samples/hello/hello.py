#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A text to a server and back, over SDP: `hello.py serve ADDRESS PORT`, `hello.py ask ADDRESS PORT TEXT`.

Python knows the addresses of AF_INET only, so SDP is the protocol.
"""

import socket
import sys

IPPROTO_SDP = 257


def receive(sock: socket.socket) -> bytes:
    """All that the peer sends until it ends its half of the stream."""
    text = b""
    while data := sock.recv(4096):
        text += data
    return text


def reply(sock: socket.socket, text: bytes) -> None:
    sock.sendall(text)
    sock.shutdown(socket.SHUT_WR)


def main() -> None:
    role, address = sys.argv[1], (sys.argv[2], int(sys.argv[3]))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SDP) as sock:
        if role == "serve":
            sock.bind(address)
            sock.listen(1)
            client, _ = sock.accept()
            with client:
                reply(client, receive(client))
        else:
            sock.connect(address)
            reply(sock, sys.argv[4].encode())
            print(receive(sock).decode())


main()
