#!/usr/bin/env python3
"""What a line carries by itself: one TCP connection, run at both of its ends.

    bench/line.py serve ADDRESS PORT           prints {"bytes_per_second": of what came, "round_trip_us": median}
    bench/line.py send ADDRESS PORT BYTES
"""

import json
import socket
import statistics
import sys
import time

PINGS = 50
SETTLE_BYTES = 1 << 20  # not counted: what fits into queues at once


def serve(address, port):
    """Answers nothing but measures: small messages to and fro, then all that comes."""
    with socket.create_server((address, port)) as listener:
        peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    trips = []
    for _ in range(PINGS):
        begin = time.monotonic()
        peer.sendall(b"?")
        peer.recv(1)
        trips.append(time.monotonic() - begin)
    count, begin, at = 0, None, None
    while part := peer.recv(1 << 16):
        count += len(part)
        at = time.monotonic()
        if begin is None and count >= SETTLE_BYTES:
            begin, counted_from = at, count
    print(json.dumps({"bytes_per_second": (count - counted_from) / (at - begin),
                      "round_trip_us": 1e6 * statistics.median(trips)}))


def send(address, port, count):
    """The other end."""
    end = time.monotonic() + 10
    while True:
        try:
            peer = socket.create_connection((address, port), timeout=5)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(PINGS):
        peer.recv(1)
        peer.sendall(b"!")
    peer.sendall(bytes(count))
    peer.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"] and len(sys.argv) == 4:
        serve(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["send"] and len(sys.argv) == 5:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(__doc__)
