"""Fails over with redis-py: failover.py SENTINEL NAME PASSWORD OLD NEW"""
import sys
import time

import redis
from redis.sentinel import MasterNotFoundError, Sentinel


def split(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


def say(text):
    print(text, flush=True)


address, name, password, old, new = sys.argv[1:]
s = Sentinel([split(address)], socket_timeout=20, sentinel_kwargs={"password": password})
assert s.discover_master(name) == split(old), s.discover_master(name)
assert s.discover_slaves(name) == [split(new)], s.discover_slaves(name)

listener = redis.Redis(*split(address), password=password).pubsub()
listener.psubscribe("*")
listener.get_message(timeout=20)

master = s.master_for(name)
master.set("k", "before")
say("wrote before")

sys.stdin.readline()
deadline = time.monotonic() + 60
while True:
    try:
        s.discover_master(name)
    except MasterNotFoundError:
        break
    assert time.monotonic() < deadline, "the old master is still named"
say("no master")

sys.stdin.readline()
while True:
    try:
        master.set("k", "after")
        break
    except redis.RedisError as e:
        assert time.monotonic() < deadline, e
        time.sleep(0.02)
assert s.discover_master(name) == split(new), s.discover_master(name)
assert redis.Redis(*split(new)).get("k") == b"after"
say("wrote after")

wanted = "%s %s %d %s %d" % ((name,) + split(old) + split(new))
while True:
    m = listener.get_message(timeout=20)
    if m and m["channel"] == b"+switch-master":
        assert m["data"].decode() == wanted, m
        break
    assert time.monotonic() < deadline, "no +switch-master"
say("told of the switch")
say("done")
