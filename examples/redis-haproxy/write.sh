#!/bin/sh
# Writes one key after the other through HAProxy, and repeats each until it is acknowledged.
i=0
while i=$((i + 1)); do
	until [ "$(timeout 5 redis-cli -p 6390 SET key-$i $i 2>&1)" = OK ]; do sleep 0.05; done
	echo $i
	sleep 0.02
done
