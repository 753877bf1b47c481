"""A libzmq socket that is told what to do, one JSON object per line, and says what it got.

peer.py KIND bind|connect ADDR [echo|print|count] [OPTION=VALUE ...]

echo sends everything back; print writes every message (of a long one the digests); count only checks that the last frame
of each message is the number of the message, and answers {"do": "counted"}.
Options: heartbeat (ms), and for CURVE server=SECRET or public=P secret=S key=SERVER.
"""
import base64
import hashlib
import json
import os
import sys

import zmq

kind, how, addr, mode = sys.argv[1:5]
options = dict(o.split("=", 1) for o in sys.argv[5:])

socket = zmq.Context().socket(getattr(zmq, kind))
socket.linger = 0
socket.sndhwm = socket.rcvhwm = 0
socket.reconnect_ivl = 20
if "server" in options:
    socket.curve_server = True
    socket.curve_secretkey = options["server"].encode()
if "public" in options:
    socket.curve_publickey = options["public"].encode()
    socket.curve_secretkey = options["secret"].encode()
    socket.curve_serverkey = options["key"].encode()
if "heartbeat" in options:
    socket.heartbeat_ivl = int(options["heartbeat"])
    socket.heartbeat_timeout = 20000
    socket.heartbeat_ttl = 20000


def say(**what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def decode(frames):
    return [base64.b64decode(f) for f in frames]


if how == "bind":
    socket.bind(addr)
else:
    socket.connect(addr)
say(at=socket.getsockopt_string(zmq.LAST_ENDPOINT))

poller = zmq.Poller()
poller.register(socket, zmq.POLLIN)
poller.register(0, zmq.POLLIN)
pending = b""
seen = wrong = 0


def obey(order):
    do = order["do"]
    if do == "send":
        socket.send_multipart(decode(order["frames"]))
    elif do == "long":  # frames of these sizes, filled with 0, 1, ... 250, 0, 1, ...
        fill = [(bytes(range(251)) * (n // 251 + 1))[:n] for n in order["sizes"]]
        socket.send_multipart(decode(order["frames"]) + fill)
    elif do == "many":
        head = decode(order["frames"])
        for i in range(order["n"]):
            socket.send_multipart(head + [str(i).encode()])
    elif do == "subscribe":
        socket.subscribe(base64.b64decode(order["prefix"]))
    elif do == "unsubscribe":
        socket.unsubscribe(base64.b64decode(order["prefix"]))
    elif do == "counted":
        say(seen=seen, wrong=wrong)


while True:
    for what, _ in poller.poll():
        if what == 0:
            got = os.read(0, 1 << 20)
            if not got:
                sys.exit(0)
            *lines, pending = (pending + got).split(b"\n")
            for line in lines:
                obey(json.loads(line))
        else:
            for _ in range(100):
                try:
                    frames = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                if mode == "echo":
                    socket.send_multipart(frames)
                elif mode == "print" and sum(map(len, frames)) > 1000:
                    say(sums=[hashlib.sha256(f).hexdigest() for f in frames])
                elif mode == "print":
                    say(frames=[base64.b64encode(f).decode() for f in frames])
                else:
                    wrong += frames[-1] != str(seen).encode()
                    seen += 1
